# label: unit
"""The include check itself: clean trees pass, each wrong one is named."""
import shutil
import sys

import pytest

from harness import TREE, run

CHECK = [sys.executable, TREE / "scripts" / "check_includes.py"]

WRONG = [  # file, line, what the finding says
    ("patterns/bad.cpp", '#include "kernels/buffer.hpp"', "patterns must not know kernels"),
    ("kernels/bad.hpp", '#include "transports/flow.hpp"', "kernels must not know transports"),
    ("transports/bad.cpp", ' # include "bench/options.hpp"', "transports must not know bench"),
    ("patterns/bad.cpp", "#include <mpi.h>", "only transports and bench know MPI"),
    ("kernels/bad.cpp", "#include <mpi.h>", "only transports and bench know MPI"),
    ("patterns/bad.cpp", "#include <omp.h>", "only kernels use threads of OpenMP"),
    ("patterns/bad.cpp", "#include <fstream>", "patterns is pure"),
    ("bench/bad.cpp", "#include <benchmark/benchmark.h>", "one file speaks Google Benchmark"),
    ("bench/bad.cpp", '#include "options.hpp"', "name it by its room"),
    ("bench/bad.cpp", "#include <bench/options.hpp>", "in quotes"),
    ("kernels/gpu/bad.cu", '#include "bench/options.hpp"', "kernels must not know bench"),
]


@pytest.fixture
def clean(folder):
    """A small tree that the check accepts."""
    for room in ("patterns", "kernels", "transports", "bench"):
        (folder / room).mkdir()
    (folder / "README.md").touch()
    (folder / "patterns/program.hpp").write_text("#include <vector>\n")
    (folder / "bench/main.cpp").write_text('#include <mpi.h>\n#include "patterns/program.hpp"\n#include "bench/options.hpp"\n')
    (folder / "bench/google_benchmark.cpp").write_text("#include <benchmark/benchmark.h>\n")
    return folder


def test_accepts_a_clean_tree(clean):
    result = run([*CHECK, clean])
    assert (result.code, result.text) == (0, "")


@pytest.mark.parametrize("name,line,finding", WRONG)
def test_names_a_wrong_include(clean, name, line, finding):
    (clean / name).parent.mkdir(exist_ok=True)
    (clean / name).write_text(f"// a comment\n{line}\n")
    result = run([*CHECK, clean])
    assert result.code == 1 and f"{name}:2: " in result.out and finding in result.out


@pytest.mark.parametrize("name", ["utils", "common", "Makefile", "notes.txt"])
def test_names_a_stranger_at_the_top(clean, name):
    if "." in name or name == "Makefile":
        (clean / name).touch()
    else:
        (clean / name).mkdir()
    result = run([*CHECK, clean])
    assert result.code == 1 and f"{name}: has no place" in result.out


def test_refuses_what_is_no_tree(clean):
    shutil.rmtree(clean / "kernels")
    assert run([*CHECK, clean]).code == 2
