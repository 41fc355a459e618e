#!/usr/bin/env python3
"""The closing line of a test run, from ctest's JUnit file:  count_tests.py tests.xml  ->  'N passed, N failed, N skipped'.

Skipped tests are listed with their reason, so that nobody takes them for passed.
"""
import re
import sys
import xml.etree.ElementTree


REASON = re.compile(r"^SKIP: (.+)|: Skipped\n(.+)", re.MULTILINE)  # pytest's conftest and format.sh; GoogleTest


def skip_reason(case):
    """The test's own words."""
    found = REASON.search(case.findtext("system-out") or "")
    return found.group(1) or found.group(2) if found else "no reason given"


def is_skipped(case):
    """A test that chose to be skipped; one whose program is missing did not run either, but failed."""
    mark = case.find("skipped")
    return mark is not None and mark.get("message", "").startswith("SKIP_")


def main(path):
    passed, failed, skipped = 0, 0, 0
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "run":
            passed += 1
        elif is_skipped(case):
            skipped += 1
            print(f"skipped: {case.get('name')}: {skip_reason(case)}")
        elif case.get("status") != "disabled":
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
