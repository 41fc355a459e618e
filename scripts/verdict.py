#!/usr/bin/env python3
"""The verdict of a results folder, from the programs' status files and rows.

    verdict.py FOLDER [--launches N] PATTERN...

The files of a program's first launch are named after its pattern, those of launch n PATTERN-n.

A launcher's own exit code says little (it joins those of the ranks, and a killed rank leaves anything), so each program
writes a status file beside its rows; only where there is none does the launcher's code count. Exit code: of all
programs' codes, the first of 1 (a verification failed), 4 (timed out), 2 (usage or environment), 3 (not finished); else 0.
"""
import collections
import csv
import json
import pathlib
import sys

ORDER = (1, 4, 2, 3)
MEANING = {0: "fine", 1: "FAILED", 2: "did not run", 3: "not finished", 4: "timed out"}


def read_status(folder, name):
    """(exit code, why) of one launch of a program."""
    path = folder / f"status-{name}.json"
    if not path.exists():
        launcher = folder / f".launcher-{name}"
        code = int(launcher.read_text()) if launcher.exists() else None
        if code in ORDER:
            return code, "it ended before its first cell"
        return 3, "not started" if code is None else f"no status file; the launcher ended with {code}"
    status = json.loads(path.read_text())
    if status["state"] == "running":
        return 3, "killed while it ran; finished cells are kept"
    code = int(status["exit_code"])
    if code == 0 and status["state"] != "complete":
        return 3, status["why"] or status["state"]
    return code if code in (0, *ORDER) else 3, status["why"]


def worst(codes):
    return next((code for code in ORDER if code in codes), 0)


def read_launches(folder, pattern, launches):
    """(exit code, why) of a program, of all its launches the worst."""
    found = [(*read_status(folder, pattern if n == 1 else f"{pattern}-{n}"), n) for n in range(1, launches + 1)]
    code = worst([code for code, _, _ in found])
    bad = [(why, n) for one, why, n in found if one == code]
    if launches == 1 or not code:
        return code, bad[0][0]
    return code, f"launches {', '.join(str(n) for _, n in bad)} of {launches}: {bad[0][0] or MEANING[code]}"


def read_rows(folder):
    """Rows of rows.csv by pattern; a torn last line is left out."""
    rows = collections.defaultdict(list)
    path = folder / "rows.csv"
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if None not in row.values():
                    rows[row["pattern"]].append(row)
    return rows


def describe(rows):
    """'24 rows: 22 verified, 2 skipped (no such algorithm)'."""
    verified = sum(row["verified"] == "true" for row in rows)
    failed = sum(row["verified"] == "false" for row in rows)
    skipped = collections.Counter(row["skip_reason"] for row in rows if row["skip_reason"])
    parts = [f"{verified} verified"]
    if failed:
        parts.append(f"{failed} WRONG")
    parts += [f"{count} skipped ({reason})" for reason, count in skipped.items()]
    return f"{len(rows)} rows: " + ", ".join(parts)


def main(arguments):
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr if arguments[:1] != ["--help"] else sys.stdout)
        return 0 if arguments[:1] == ["--help"] else 2
    folder, patterns, launches = pathlib.Path(arguments[0]), arguments[1:], 1
    if patterns[0] == "--launches":
        launches, patterns = int(patterns[1]), patterns[2:]
    rows = read_rows(folder)
    codes = []
    for pattern in patterns:
        code, why = read_launches(folder, pattern, launches)
        codes.append(code)
        reason = f"; {why}" if why and code else ""
        print(f"  weft-{pattern:14} {MEANING[code]:12} {describe(rows[pattern])}{reason}")
    return worst(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
