# label: unit
"""scripts/count_tests.py and the skip rule of conftest.py: a skipped or missing test is never counted as passed."""
import sys

from harness import TREE, run

CASES = """<testsuite tests="5">
<testcase name="a" status="run"><system-out/></testcase>
<testcase name="b" status="fail"><failure message=""/><system-out/></testcase>
<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>x
SKIP: no such kernel
</system-out></testcase>
<testcase name="d" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>a.cpp:3: Skipped
one core only
</system-out></testcase>
<testcase name="e" status="notrun"><skipped message="Unable to find executable"/><system-out/></testcase>
</testsuite>
"""


def test_counts(folder):
    (folder / "tests.xml").write_text(CASES)
    result = run([sys.executable, TREE / "scripts" / "count_tests.py", folder / "tests.xml"])
    assert result.code == 0
    assert result.out.splitlines() == ["skipped: c: no such kernel", "skipped: d: one core only", "1 passed, 2 failed, 2 skipped"]


def pytest_code(folder, body):
    """Exit code and output of pytest on a file beside the real conftest."""
    for name in ("conftest.py", "harness.py"):
        (folder / name).write_text((TREE / "tests" / "system" / name).read_text())
    (folder / "test_it.py").write_text("import pytest\n" + body)
    result = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], cwd=folder)
    return result.code, result.out


SKIPPED = "def test_a():\n    pytest.skip('no such kernel')\n"


def test_all_skipped_is_77_with_the_reason(folder):
    code, out = pytest_code(folder, SKIPPED)
    assert code == 77 and "\nSKIP: no such kernel\n" in out


def test_one_passed_is_0(folder):
    assert pytest_code(folder, SKIPPED + "def test_b():\n    pass\n")[0] == 0


def test_one_failed_is_1(folder):
    assert pytest_code(folder, SKIPPED + "def test_b():\n    assert 0\n")[0] == 1
    assert pytest_code(folder, "@pytest.fixture\ndef f():\n    assert 0\ndef test_b(f):\n    pass\n")[0] == 1
