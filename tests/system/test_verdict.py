# label: unit
"""scripts/verdict.py: one exit code out of five programs' status files, and nothing missing that passes."""
import json
import sys

import pytest

from harness import PATTERNS, TREE, run

VERDICT = [sys.executable, TREE / "scripts" / "verdict.py"]
HEAD = "pattern,verified,skip_reason\n"


def judge(folder, statuses, rows=HEAD, launchers=None):
    """statuses: {pattern: (state, exit code, why)}."""
    (folder / "rows.csv").write_text(rows)
    for pattern, (state, code, why) in statuses.items():
        (folder / f"status-{pattern}.json").write_text(json.dumps({"state": state, "exit_code": code, "why": why}))
    for pattern, code in (launchers or {}).items():
        (folder / f".launcher-{pattern}").write_text(f"{code}\n")
    return run([*VERDICT, folder, *PATTERNS])


FINE = {pattern: ("complete", 0, "") for pattern in PATTERNS}


def test_all_fine(folder):
    rows = HEAD + "".join(f"{pattern},true,\n{pattern},,no room\n" for pattern in PATTERNS)
    result = judge(folder, FINE, rows)
    assert result.code == 0 and result.out.count("2 rows: 1 verified, 1 skipped (no room)") == len(PATTERNS)


@pytest.mark.parametrize("codes,expected", [((0, 1), 1), ((2, 1), 1), ((4, 3), 4), ((2, 3), 2), ((3, 0), 3), ((4, 2), 4)])
def test_the_gravest_code_wins(folder, codes, expected):
    statuses = {**FINE, PATTERNS[0]: ("complete", codes[0], "a"), PATTERNS[4]: ("complete", codes[1], "because")}
    result = judge(folder, statuses)
    assert result.code == expected
    assert "because" in result.out or codes[1] == 0


def test_a_killed_program_is_not_fine(folder):
    assert judge(folder, {**FINE, PATTERNS[2]: ("running", None, "")}, launchers={PATTERNS[2]: 9}).code == 3


def test_an_incomplete_run_is_not_fine(folder):
    assert judge(folder, {**FINE, PATTERNS[2]: ("incomplete", 0, "disk full")}).code == 3


def test_a_missing_status_is_not_fine(folder):
    without = {pattern: FINE[pattern] for pattern in PATTERNS[:-1]}
    assert judge(folder, without).code == 3
    assert judge(folder, without, launchers={PATTERNS[-1]: 2}).code == 2
    assert judge(folder, without, launchers={PATTERNS[-1]: 139}).code == 3


def test_wrong_rows_are_shown(folder):
    result = judge(folder, {**FINE, PATTERNS[0]: ("complete", 1, "")}, HEAD + f"{PATTERNS[0]},false,\n{PATTERNS[0]},true,\n")
    assert result.code == 1 and "1 verified, 1 WRONG" in result.out


def test_a_torn_last_row_is_left_out(folder):
    assert "1 rows" in judge(folder, FINE, HEAD + f"{PATTERNS[0]},true,\n{PATTERNS[0]}").out


def test_of_several_launches_the_worst_counts(folder):
    """run.sh --launches: the files of launch n are named PATTERN-n."""
    names = [f"{pattern}{n}" for pattern in PATTERNS for n in ("", "-2", "-3")]
    fine = {name: ("complete", 0, "") for name in names}

    def launches(statuses):
        judge(folder, statuses)
        return run([*VERDICT, folder, "--launches", 3, *PATTERNS])

    assert launches(fine).code == 0
    result = launches({**fine, f"{PATTERNS[1]}-2": ("complete", 1, "rank 1 was wrong")})
    assert result.code == 1 and "launches 2 of 3: rank 1 was wrong" in result.out and result.out.count(" fine ") == 4, result
    (folder / f"status-{PATTERNS[0]}-3.json").unlink()
    del fine[f"{PATTERNS[0]}-3"]
    result = launches(fine)
    assert result.code == 3 and "launches 3 of 3: not started" in result.out, result
