# label: mpi
"""Google Benchmark is only the shell around our cells: its numbers are ours, its options work."""
import json

from harness import QUICK, mpiexec, read_rows


def test_its_json_agrees_with_the_csv(folder):
    csv, document = folder / "rows.csv", folder / "gbench.json"
    result = mpiexec(2, "tp-allgather", *QUICK, "--transport", "mpi,shm", "--csv", csv, f"--benchmark_out={document}")
    assert result.code == 0, result
    ours = {row["cell_id"]: float(row["t_p50_us"]) for row in read_rows(csv)}
    theirs = {}
    for entry in json.loads(document.read_text())["benchmarks"]:
        assert entry["time_unit"] == "us"
        theirs[entry["name"].removesuffix("/iterations:1/manual_time")] = entry["real_time"]
    assert theirs.keys() == ours.keys() and ours
    for cell, time in ours.items():
        assert abs(theirs[cell] - time) <= 1e-5 * time, cell


def test_filter_and_list(folder):
    csv = folder / "rows.csv"
    result = mpiexec(2, "tp-allgather", *QUICK, "--transport", "mpi,shm", "--csv", csv, "--benchmark_filter=shm.*/comm")
    assert result.code == 0, result
    rows = read_rows(csv)
    assert rows and {(row["transport"], row["phase"]) for row in rows} == {("shm", "comm")}
    listed = mpiexec(2, "tp-allgather", "--transport", "shm", "--csv", "none", "--benchmark_list_tests=true")
    assert listed.code == 0, listed
    names = [line for line in listed.out.splitlines() if line.startswith("tp-allgather/")]
    assert len(names) == 8 and len(set(names)) == 8   # forward and backward, four phases, said by one rank


def test_repetitions_are_told_apart(folder):
    csv = folder / "rows.csv"
    result = mpiexec(2, "row-allreduce", *QUICK, "--transport", "shm", "--phase", "comm", "--direction", "forward", "--csv", csv,
                     "--benchmark_repetitions=3")
    assert result.code == 0, result
    assert [row["repetition"] for row in read_rows(csv)] == ["", "1", "2"]


def test_an_option_it_does_not_know(folder):
    result = mpiexec(2, "tp-allgather", "--csv", "none", "--benchmark_nonsense=1")
    assert result.code == 2, result
    assert "--benchmark_nonsense" in result.err
