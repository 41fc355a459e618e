#!/usr/bin/env python3
"""Checks that the rooms of the tree include each other in one direction only, and that nothing else moved in.

    check_includes.py [TREE]

bench -> transports -> kernels -> patterns: a room includes itself and what stands to its right. Exit codes: 0 clean,
1 something points the wrong way (a line each: file, line, what, why), 2 no such tree.
"""
import pathlib
import re
import sys

ROOMS = ["patterns", "kernels", "transports", "bench"]  # each may include what stands before it
FOLDERS = {*ROOMS, "scripts", "results", "tests"}
FILES = {"CMakeLists.txt", "README.md", "LICENSE"}
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
MPI = re.compile(r"mpi\w*\.h$")
LIBRARIES = [  # (header, rooms or files that may include it, why)
    (MPI, {"transports", "bench"}, "only transports and bench know MPI"),
    (re.compile(r"omp\.h$"), {"kernels"}, "only kernels use threads of OpenMP"),
    (re.compile(r"cblas\w*\.h$|openblas"), {"kernels"}, "only kernels compute"),
    (re.compile(r"(cuda|cublas|nccl|nvml|infiniband/|rdma/)"), {"kernels", "transports"}, "only kernels and transports know devices"),
    (re.compile(r"hwloc"), {"transports"}, "the inventory is the transports'"),
    (re.compile(r"CLI/"), {"bench"}, "the command line is bench's"),
    (re.compile(r"benchmark/benchmark\.h$"), {"bench/google_benchmark.cpp"}, "one file speaks Google Benchmark"),
    (re.compile(r"(fstream|iostream|filesystem|thread|mutex|(sys/|unistd).*)$"), set(ROOMS[1:]), "patterns is pure: no I/O, no threads"),
]


def check_include(file, room, quote, header):
    """Why `header` must not be included by `file` of `room`; empty if it may."""
    target = header.split("/")[0]
    if quote == '"':
        if target not in ROOMS:
            return f'name it by its room, as "{room}/...", or in <> if it is a library\'s'
        if ROOMS.index(target) > ROOMS.index(room):
            return f"{room} must not know {target}"
        return ""
    for pattern, allowed, why in LIBRARIES:
        if pattern.match(header) and not {room, file} & allowed:
            return why
    return f'write "{header}" in quotes' if target in ROOMS and header.endswith(".hpp") else ""


def check_file(tree, path):
    """Findings of one source file."""
    name = path.relative_to(tree).as_posix()
    room = name.split("/")[0]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            why = check_include(name, room, *include.groups())
            if why:
                yield f"{name}:{number}: includes {include.group(2)}: {why}"


def check_top(tree):
    """Findings at the top level: only the fixed entries, dot-files and build folders."""
    for path in sorted(tree.iterdir()):
        name = path.name
        known = name in (FOLDERS if path.is_dir() else FILES)
        ignored = name.startswith((".", "build")) or name == "compile_commands.json"
        if not known and not ignored:
            yield f"{name}: has no place at the top of the tree"


def main(arguments):
    tree = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    if not all((tree / room).is_dir() for room in ROOMS):
        print(f"check_includes.py: {tree} has not the rooms {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    findings = list(check_top(tree))
    for room in ROOMS:
        for path in sorted((tree / room).rglob("*")):
            if path.suffix in SUFFIXES:
                findings += check_file(tree, path)
    for line in findings:
        print(line)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
