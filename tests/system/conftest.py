"""Pytest's side of the system tests: private folders, and exit status 77 where every test was skipped (ctest then shows
'Skipped', with the reason, in place of 'Passed')."""
import pathlib
import shutil
import tempfile

import pytest

from harness import TREE

outcomes = set()


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes.add(report.outcome)
        if report.skipped and isinstance(report.longrepr, tuple):
            print(f"\nSKIP: {report.longrepr[2].removeprefix('Skipped: ')}")


def pytest_sessionfinish(session, exitstatus):
    if exitstatus == 0 and outcomes == {"skipped"}:
        session.exitstatus = 77


@pytest.fixture
def folder():
    """An empty folder of this test's own (not below pytest's, which only its user may enter)."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="weft-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tree():
    return TREE
