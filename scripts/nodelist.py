#!/usr/bin/env python3
"""Expands Slurm host lists without Slurm, and says which hosts a run covered.

    nodelist.py 'rack[0-1]-n[08-10],login'             the names, one a line
    nodelist.py --count 'gpu-a-[3,5-6]'                how many
    nodelist.py 'n[1-4]' --covered FILE...             hosts asked for against hosts in CSV rows

A list is comma-separated; each entry may hold several brackets, with text before, between and after; the rightmost
bracket counts fastest. Padding is kept (n[08-10] is n08, n09, n10). Exit codes: 0; 1 a host asked for has no rows;
2 a list that cannot be read, which is quoted: it never stands for fewer hosts than somebody meant.
"""
import argparse
import csv
import itertools
import re
import sys

MOST_HOSTS = 1_000_000
TEXT = re.compile(r"[A-Za-z0-9_.:-]*")
RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


class BadList(ValueError):
    """A host list that cannot be read; the message says which part."""


def split_outside_brackets(text):
    """The list's entries; commas inside brackets do not split."""
    entries, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise BadList("brackets do not pair up")
        if char == "," and depth == 0:
            entries.append(text[start:place])
            start = place + 1
    if depth:
        raise BadList("a bracket is not closed")
    return entries + [text[start:]]


def expand_range(text):
    """'08-10' -> ['08', '09', '10'], lazily; '3' -> ['3']."""
    match = RANGE.fullmatch(text)
    if not match:
        raise BadList(f"'{text}' is no number and no range of numbers")
    low, high = match.group(1), match.group(2) or match.group(1)
    if int(low) > int(high):
        raise BadList(f"the range '{text}' runs backwards")
    if len(low) > len(high) or (high[0] == "0" and len(low) != len(high)):
        raise BadList(f"the range '{text}' mixes two paddings")
    if int(high) - int(low) >= MOST_HOSTS:
        raise BadList(f"the range '{text}' has more than {MOST_HOSTS} numbers")
    return [str(n).zfill(len(low)) for n in range(int(low), int(high) + 1)]


def expand_entry(entry):
    """One entry with any number of brackets."""
    parts, count = [], 1
    for index, part in enumerate(re.split(r"[\[\]]", entry)):
        if index % 2:
            parts.append([name for piece in part.split(",") for name in expand_range(piece)])
        elif TEXT.fullmatch(part):
            parts.append([part])
        else:
            raise BadList(f"'{part}' is not part of a host name")
        count *= len(parts[-1])
        if count > MOST_HOSTS:
            raise BadList(f"'{entry}' has more than {MOST_HOSTS} hosts")
    return ["".join(words) for words in itertools.product(*parts)]


def expand(text):
    """All names of a host list, in its order. Raises BadList, which quotes the text."""
    try:
        if not text:
            raise BadList("it is empty")
        names = []
        for entry in split_outside_brackets(text):
            if not entry:
                raise BadList("an entry between two commas is empty")
            names += expand_entry(entry)
        if len(names) > MOST_HOSTS:
            raise BadList(f"it has more than {MOST_HOSTS} hosts")
        return names
    except BadList as error:
        raise BadList(f"host list '{text}': {error}") from None


def same_host(asked, seen):
    """A short name and a full name are one host if one is the other's first label; two full names must be equal."""
    if asked == seen:
        return True
    return ("." in asked) != ("." in seen) and asked.split(".")[0] == seen.split(".")[0]


def hosts_of(path):
    """Hosts of the ranks of all rows of a CSV file; a torn last row names none."""
    with open(path, newline="", encoding="utf-8") as file:
        return {name for row in csv.DictReader(file) for name in (row["host_names"] or "").split()}


def covered(asked, paths):
    """Prints hosts asked for against hosts seen; returns the exit code."""
    seen = set().union(*(hosts_of(path) for path in paths))
    missing = [name for name in asked if not any(same_host(name, host) for host in seen)]
    print(f"hosts asked for: {len(asked)}, with rows: {len(asked) - len(missing)}")
    if missing:
        print("no rows from: " + ", ".join(missing))
    return 1 if missing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list")
    parser.add_argument("--count", action="store_true", help="print how many hosts")
    parser.add_argument("--covered", nargs="+", metavar="FILE", default=[], help="CSV files of rows")
    options = parser.parse_args()
    names = expand(options.list)
    if options.covered:
        return covered(names, options.covered)
    print(len(names) if options.count else "\n".join(names))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadList as error:
        print(f"nodelist.py: {error}", file=sys.stderr)
        sys.exit(2)
    except (OSError, KeyError, UnicodeDecodeError) as error:
        print(f"nodelist.py: not a CSV file of rows: {error!r}", file=sys.stderr)
        sys.exit(2)
