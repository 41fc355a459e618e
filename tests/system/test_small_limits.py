# label: mpi
"""Limits of the system that are too small (C19): rank, host, limit, need and cure are named, all ranks end together, and what can be
measured is. Locked memory is in test_rdma.py."""
import os
import select

import pytest

from harness import PATTERNS, QUICK, assert_all_verified, end_group, error_lines, mpiexec, program, read_rows, start

RAISES = "ulimit -n 1024"
SHORT = ("--sizes", 8, "--min-time", 0, "--max-time", 0.05)


def files(limit, rank="*"):
    """Prefix that lets ranks (one, or all) open so many files."""
    return ["sh", "-c", f'case $PMI_RANK in {rank}) ulimit -n {limit};; esac; exec "$@"', "sh"]


def test_open_files_of_all_ranks(folder):
    """MPI itself would abort, in words of its own."""
    for limit in (40, 24):
        result = mpiexec(12, "tp-allgather", *SHORT, "--csv", folder / "r.csv", prefix=files(limit), timeout=30)
        lines = error_lines(result)
        assert result.code == 2 and len(lines) == 1 and result.seconds < 20, result
        assert "rank 0 on " in lines[0] and f"RLIMIT_NOFILE is {limit}" in lines[0] and RAISES in lines[0], lines


def test_open_files_of_one_rank(folder):
    """The others would wait for it in MPI_Init for ever."""
    for name in ("tp-allgather", "pairs"):
        result = mpiexec(4, name, *SHORT, "--csv", folder / "r.csv", prefix=files(40, 2), timeout=30)
        lines = error_lines(result)
        assert result.code == 2 and len(lines) == 1 and result.seconds < 20, result
        assert "rank 2 on " in lines[0] and "RLIMIT_NOFILE is 40" in lines[0] and RAISES in lines[0], lines


def test_the_launcher_has_read_the_error_before_it_is_told_to_end():
    """Hydra throws away what is still in the pipes of ranks that it ends. Here the test is the launcher, and reads late."""
    for name in ("tp-allgather", "pairs"):
        told, line = os.pipe()
        process = start([*files(24), program(name)], pass_fds=[line],
                        env={"PMI_FD": line, "PMI_RANK": 0, "PMI_SIZE": 1, "MPI_LOCALNRANKS": 1})
        os.close(line)
        try:
            assert select.select([process.stderr], [], [], 20)[0]
            assert not select.select([told], [], [], 0.5)[0], "told to end with the error unread"
            assert "RLIMIT_NOFILE is 24" in process.stderr.readline()
            assert os.read(told, 100) == b"cmd=abort exitcode=2\n"
            assert process.wait(20) == 2
        finally:
            end_group(process)
            os.close(told)


def test_a_soft_limit_is_raised(folder):
    """Up to the hard one, without a word."""
    csv = folder / "r.csv"
    result = mpiexec(2, "tp-allgather", "--transport", "mpi,shm", *SHORT, "--csv", csv, prefix=["sh", "-c", 'ulimit -Sn 24; exec "$@"', "sh"])
    assert result.code == 0 and not result.err, result
    assert len(assert_all_verified(read_rows(csv))) == 2


def test_files_enough_for_mpi_only(folder):
    """Shared memory takes four more a rank: said, and the rows of mpi come."""
    csv = folder / "r.csv"
    result = mpiexec(12, "tp-allgather", "--transport", "mpi,shm", *SHORT, "--csv", csv, prefix=files(90), timeout=60)
    lines = error_lines(result)
    assert result.code == 2 and len(lines) == 1, result
    assert "RLIMIT_NOFILE is 90" in lines[0] and "available: mpi" in lines[0] and RAISES in lines[0], lines
    rows = {row["transport"]: row for row in read_rows(csv)}
    assert rows.keys() == {"mpi", "shm"}
    assert float(rows["mpi"]["t_p50_us"]) > 0 and rows["mpi"]["verified"] == "true" and not rows["mpi"]["skip_reason"]
    assert not rows["shm"]["t_p50_us"] and "RLIMIT_NOFILE is 90" in rows["shm"]["skip_reason"]


def test_a_transport_that_is_not_there(folder):
    """Asked for with others: they are measured, its cells say why they have no times, and the run ends with 2."""
    for name in (*PATTERNS, "pairs"):
        csv = folder / f"{name}.csv"
        short = SHORT if name == "pairs" else QUICK
        result = mpiexec(2, name, "--transport", "verbs,mpi", *short, "--csv", csv)
        if name == PATTERNS[0] and result.code == 0:
            pytest.skip("verbs is available here")
        lines = error_lines(result)
        assert result.code == 2 and len(lines) == 1 and "verbs: " in lines[0] and "available: mpi, shm" in lines[0], result
        rows = read_rows(csv)
        refused = [row for row in rows if row["transport"] == "verbs"]
        assert refused and all(row["skip_reason"] and not row["t_p50_us"] for row in refused)
        measured = [row for row in rows if row["transport"] == "mpi"]
        assert measured and all(float(row["t_p50_us"]) > 0 and row["verified"] == "true" for row in measured)
