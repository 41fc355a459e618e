# label: mpi
"""How cells are measured, seen from outside: order, turns, rotation, clocks, noise, checks of timed buffers."""
import collections
import math
import os
import pathlib
import shutil

import pytest
from harness import QUICK, find_mpiexec, mpiexec, other_load, program, read_rows, run

SWEEP = ("--sizes", "1K:32K:x2", "--min-time", "0", "--max-time", "0.02")


def rows_of(path, transport="shm", collective="all_reduce"):
    return [row for row in read_rows(path) if row["transport"] == transport and f"/{collective}." in row["cell_id"]]


def number(row, column):
    return float(row[column]) if row[column] else math.nan


def test_order_of_cells_differs_between_launches(tmp_path):
    csv = tmp_path / "rows.csv"
    for _ in range(3):
        result = mpiexec(2, "row-allreduce", *SWEEP, "--csv", csv)
        assert result.code == 0, result
    orders = collections.defaultdict(list)
    for row in read_rows(csv):
        orders[row["launch_id"]].append(row["cell_id"])
    assert len(orders) == 3
    assert len({frozenset(cells) for cells in orders.values()}) == 1, "launches measured different cells"
    assert len({tuple(cells) for cells in orders.values()}) > 1, "three launches in one order"


def test_transports_of_a_case_stand_together_and_the_filter_takes_some(tmp_path):
    csv = tmp_path / "rows.csv"
    result = mpiexec(2, "row-allreduce", *SWEEP, "--csv", csv, "--benchmark_filter=shm.*comm")
    assert result.code == 0, result
    assert {row["transport"] for row in read_rows(csv)} == {"shm"}
    csv = tmp_path / "both.csv"
    result = mpiexec(2, "row-allreduce", *SWEEP, "--csv", csv)
    assert result.code == 0, result
    rows = read_rows(csv)
    for first, second in zip(rows[::2], rows[1::2]):
        assert first["size"] == second["size"] and first["transport"] != second["transport"]


def test_buffers_rotate_unless_hot(tmp_path):
    csv = tmp_path / "rows.csv"
    for options in ((), ("--hot",)):
        result = mpiexec(2, "row-allreduce", "--sizes", "64K", "--max-time", "0.05", "--csv", csv, *options)
        assert result.code == 0, result
    rotated, hot = rows_of(csv)
    assert (rotated["cache"], hot["cache"]) == ("rotated", "hot")
    assert rotated["cell_id"] != hot["cell_id"]
    assert int(hot["rotation_bytes"]) == 2 * 65536
    level3 = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    known = int(level3.read_text().rstrip("K\n")) * 1024 if level3.exists() else 0
    assert 2 * int(rotated["rotation_bytes"]) >= 2 * known


def test_timed_buffers_are_checked(tmp_path):
    for name, options in (("row-allreduce", ("--sizes", "4K")), ("tp-allgather", ("--model", "tiny"))):
        csv = tmp_path / f"{name}.csv"
        result = mpiexec(2, name, *options, "--max-time", "0.02", "--csv", csv, "--inject", "corrupt:1:0@timed")
        assert result.code == 1, result
        wrong = [row for row in read_rows(csv) if row["verified"] == "false"]
        assert wrong
        for row in wrong:
            assert "after the timed iterations" in row["skip_reason"] and "rank 1" in row["skip_reason"], row
            assert row["t_p50_us"] == ""
        assert all(row["phase"] == "compute" for row in read_rows(csv) if row["verified"] == "true")


def test_overlap_figures_follow_from_the_phases(tmp_path):
    csv = tmp_path / "rows.csv"
    result = mpiexec(2, "dp-gradsync", *QUICK, "--csv", csv)
    assert result.code == 0, result
    by_cell = {(row["transport"], row["phase"]): row for row in read_rows(csv)}
    for transport in ("mpi", "shm"):
        row = by_cell[transport, "overlap"]
        exposed, comm = number(row, "exposed_us"), number(by_cell[transport, "comm"], "t_p50_us")
        assert number(row, "hidden_share") == pytest.approx(1 - exposed / comm, rel=1e-3, abs=1e-3)
        hollow = number(row, "t_p50_us") - exposed
        compute = number(by_cell[transport, "compute"], "t_p50_us")
        assert number(row, "bubble_us") == pytest.approx(hollow - compute, rel=1e-3, abs=0.1)
        assert number(row, "compute_slowdown") > 0
        assert by_cell[transport, "serial"]["exposed_us"] == ""
        assert row["stream_cores"] in ("own", "shared")


def test_other_load_marks_and_repeats_a_cell(tmp_path):
    csv, samples = tmp_path / "rows.csv", tmp_path / "samples.csv"
    with other_load(2):
        result = mpiexec(2, "row-allreduce", "--sizes", "16K", "--max-time", "2", "--precision", "10%",
                         "--csv", csv, "--samples", samples)
    assert result.code == 0, result
    for row in read_rows(csv):
        assert "load" in row["noise"] or row["noise"] == "unknown", row
        if row["noise"] != "unknown":
            assert number(row, "other_load") > 0.05
    attempts = {(row["cell_id"], row["attempt"]) for row in read_rows(samples)}
    for row in read_rows(csv):
        kept = sum(cell == row["cell_id"] for cell, _ in attempts)
        assert kept == int(row["attempts"]), "an attempt is missing in the samples file"


def test_hosts_whose_clocks_differ_by_a_day_start_together(tmp_path):
    """Two hosts by UTS namespaces, the second a day ahead by a time namespace."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (package util-linux) is needed to give ranks hosts of their own")
    ahead = ["unshare", "--uts", "--time", "--fork", "--monotonic", "86400", "sh", "-c"]
    if os.system(" ".join(ahead) + " 'hostname probe' 2>/dev/null"):
        pytest.skip("UTS and time namespaces are not allowed here")
    csv, samples = tmp_path / "rows.csv", tmp_path / "samples.csv"
    words = f"{program('row-allreduce')} --sizes 8K --transport mpi --max-time 0.3 --csv {csv} --samples {samples}"
    result = run([find_mpiexec(), "-n", "1", "unshare", "--uts", "sh", "-c", f"hostname one; exec {words}",
                  ":", "-n", "1", *ahead, f"hostname two; exec {words}"])
    assert result.code == 0, result
    row, = rows_of(csv, "mpi")
    assert row["hosts"] == "2" and row["host_names"] == "one two"
    assert 0 < number(row, "clock_residual_us") < 5e3
    assert 0 < number(row, "t_min_us") <= number(row, "t_max_us") < 60e6
    assert number(row, "start_skew_us") < 1e5
    for sample in read_rows(samples):
        assert -1e6 < float(sample["start_us"]) <= float(sample["end_us"]) < 600e6, sample
