# label: mpi
"""weft-pairs on real ranks: every ordered pair has its rows, verified; the matrix; choice of pairs; bad input; a stopped peer."""
import collections
import itertools
import os
import re
import signal
import time

import pytest

from harness import (assert_all_verified, descendants, end_group, error_lines, mpiexec, mpiexec_command, other_load, rank_pids, read_rows, start,
                     status_of)

TESTS = ("latency", "bandwidth", "bidirectional")
QUICK = ("--min-time", 0, "--max-time", "0.02", "--sizes", "8,16K")
TIMEOUT = 3


def pairs(folder, ranks, *arguments, quick=QUICK, **more):
    """(Result, rows) of a run that must end well."""
    csv = folder / "pairs.csv"
    result = mpiexec(ranks, "pairs", *quick, "--csv", csv, *arguments, **more)
    assert result.code == 0, result
    rows = read_rows(csv)
    assert_all_verified(rows)
    assert status_of(csv)["state"] == "complete"
    return result, rows


def key(row):
    return (int(row["peer_from"]), int(row["peer_to"]), int(row["size"]), row["transport"], row["test"], int(row["round"]))


def expected(ordered_pairs, transports=("mpi", "shm"), rounds=(1,)):
    return {(a, b, size, transport, test, turn) for a, b in ordered_pairs for size in (8, 16384)
            for transport in transports for test in TESTS for turn in rounds}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_ordered_pair(folder, ranks):
    result, rows = pairs(folder, ranks, "--transport", "mpi,shm")
    assert len(rows) == len({key(row) for row in rows}) == len({row["cell_id"] for row in rows})
    assert {key(row) for row in rows} == expected(itertools.permutations(range(ranks), 2))
    for row in rows:
        assert int(row["n"]) >= 1 and float(row["t_p50_us"]) > 0 and int(row["world"]) == ranks, row
        moved = int(row["window"]) * int(row["size"]) * (2 if row["test"] == "bidirectional" else 1)
        assert int(row["bytes_logical"]) == moved, row
        if row["test"] == "latency":
            assert row["window"] == "1" and not row["algbw_GBps"], row
        else:
            assert float(row["algbw_GBps"]) == pytest.approx(moved / float(row["t_p50_us"]) / 1e3, rel=1e-3), row
        if row["transport"] == "shm" and row["test"] != "latency":   # posted by one rank: its own window
            assert float(row["wire_GBps"]) == pytest.approx(float(row["busbw_GBps"]), rel=1e-3), row
    check_matrix(result.out, ranks)


def check_matrix(text, ranks):
    """One for each size, transport and test, with as many lines as ranks and nothing on the diagonal."""
    heads = [line for line in text.splitlines() if re.match(r"(latency|bandwidth|bidirectional) of (8 B|16 KiB) by (mpi|shm), ", line)]
    assert len(heads) == len(set(heads)) == 2 * 2 * 3, heads
    lines = text.splitlines()
    for head in heads:
        at = lines.index(head) + 1
        assert lines[at].split() == ["from\\to", *map(str, range(ranks))], lines[at]
        for rank in range(ranks):
            cells = lines[at + 2 + rank].split()
            assert cells[0] == str(rank) and len(cells) == ranks + 1 and cells[rank + 1] == "-", cells
            assert all(float(cell) > 0 for to, cell in enumerate(cells[1:]) if to != rank), cells
        assert re.match(r"worst .* \(\d -> \d\), median .*, best .* \(\d -> \d\)$", lines[at + 2 + ranks]), lines[at + 2 + ranks]


def test_chosen_pairs(folder):
    (folder / "chosen.txt").write_text("# the far ones\n0 3\n\n2 0  # and back\n")
    _, rows = pairs(folder, 4, "--pairs", folder / "chosen.txt", "--transport", "shm")
    assert {key(row) for row in rows} == expected([(0, 3), (3, 0), (0, 2), (2, 0)], ["shm"])


def test_rounds_are_counted(folder):
    _, rows = pairs(folder, 3, "--rounds", 2, "--transport", "shm", "--one-at-a-time")
    assert sorted(map(key, rows)) == sorted(expected(itertools.permutations(range(3), 2), ["shm"], (1, 2)))
    assert len({row["cell_id"] for row in rows}) == len(rows) / 2, "a cell is the same in all rounds"
    assert {(row["round"], row["repetition"]) for row in rows} == {("1", ""), ("2", "1")}


def test_samples_and_hot_buffers(folder):
    _, rows = pairs(folder, 2, "--hot", "--samples", folder / "samples.csv", "--json", folder / "rows.json")
    assert {row["cache"] for row in rows} == {"hot"} and all(row["cell_id"].endswith("/hot") for row in rows)
    samples = read_rows(folder / "samples.csv")
    check_samples(rows, samples)


def check_samples(rows, samples):
    """Those of every attempt, numbered; the row is one of them."""
    for row in rows:
        mine = [sample for sample in samples if sample["cell_id"] == row["cell_id"]]
        counts = collections.Counter(int(sample["attempt"]) for sample in mine)
        assert sorted(counts) == list(range(1, int(row["attempts"]) + 1)), row
        assert int(row["n"]) in counts.values() and {sample["rank"] for sample in mine} == {row["peer_from"]}, row


def test_the_least_time_is_kept(folder):
    """However short the messages: what is to run for half a second loads the network for half a second (20000 of them take a few milliseconds)."""
    _, rows = pairs(folder, 2, "--transport", "shm", "--samples", folder / "samples.csv",
                    quick=("--min-time", 0.5, "--max-time", 0.5, "--sizes", "8"))
    samples = read_rows(folder / "samples.csv")
    check_samples(rows, samples)
    for row in rows:
        mine = [sample for sample in samples if sample["cell_id"] == row["cell_id"] and sample["attempt"] == row["attempts"]]
        assert float(mine[-1]["end_us"]) - float(mine[0]["start_us"]) > 0.45e6 and 1000 < len(mine) < 21000, row
        if row["test"] == "latency":
            assert float(row["t_p50_us"]) * 2 * len(mine) < 0.25e6, row   # of more iterations than are kept


def test_noisy_cells_are_measured_again(folder):
    """The quietest attempt is in the row, all are in the samples."""
    with other_load(2):
        _, rows = pairs(folder, 2, "--transport", "shm", "--samples", folder / "samples.csv",
                        quick=("--min-time", 0.3, "--max-time", 3, "--sizes", "8"))
    again = [row for row in rows if int(row["attempts"]) > 1]
    assert again and all(int(row["attempts"]) <= 3 for row in rows), [row["attempts"] for row in rows]
    check_samples(rows, read_rows(folder / "samples.csv"))


@pytest.mark.parametrize("text, part", [("0 1\n0 one\n", "line 2"), ("0 2\n", "line 1"), ("0\n", "line 1"), ("0 1\n1 0\n", "line 2"),
                                        ("# none\n", "no pair")])
def test_a_bad_file_of_pairs(folder, text, part):
    (folder / "bad.txt").write_text(text)
    result = mpiexec(2, "pairs", "--pairs", folder / "bad.txt", "--csv", folder / "r.csv")
    assert result.code == 2, result
    (line,) = error_lines(result)
    assert "bad.txt" in line and part in line, line


def test_no_such_file_of_pairs(folder):
    result = mpiexec(2, "pairs", "--pairs", folder / "none.txt", "--csv", folder / "r.csv")
    assert result.code == 2, result
    (line,) = error_lines(result)
    assert "none.txt" in line and "No such file" in line, line


def test_one_rank_is_too_few(folder):
    result = mpiexec(1, "pairs", "--csv", folder / "r.csv")
    assert result.code == 2, result
    (line,) = error_lines(result)
    assert "two ranks" in line and "mpiexec -n 2" in line, line


@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_a_stopped_peer_is_named(folder, transport):
    csv = folder / "r.csv"
    command = mpiexec_command(3, "pairs", "--transport", transport, "--sizes", "8", "--min-time", "0.05", "--max-time", "0.1",
                              "--timeout", TIMEOUT, "--rounds", 1000, "--csv", csv)
    process = start(command)
    try:
        deadline = time.monotonic() + 60
        while not csv.exists() or csv.read_text().count("\n") < 3:
            assert time.monotonic() < deadline and process.poll() is None, "no rows"
            time.sleep(0.05)
        family = descendants(process.pid)
        began = time.monotonic()
        os.kill(sorted(rank_pids(process, "pairs"))[1], signal.SIGSTOP)
        _, err = process.communicate(timeout=30)
    finally:
        end_group(process)
        for pid in family:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert process.returncode == 4, err
    assert time.monotonic() - began < TIMEOUT + 12
    (line,) = [line for line in err.splitlines() if line.startswith("weft:")]
    assert "missing: rank 1 on " in line and "stopped" in line and "pairs/n3/" in line.split("missing:")[1], line
    assert (status_of(csv)["state"], status_of(csv)["exit_code"]) == ("incomplete", 4)
    assert_all_verified(read_rows(csv))
