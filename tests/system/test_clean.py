# label: mpi
"""However a run ends, it leaves nothing behind, and what it measured stays."""
import os
import pathlib
import pwd
import random
import signal
import time

import pytest

from harness import QUICK, assert_all_verified, descendants, end_group, mpiexec_command, rank_pids, read_json, read_rows, run, start, status_of
from namespaces import private_shm

LONG = ("--transport", "shm,mpi", "--sizes", "4K:16M:x2", "--min-time", "0.1", "--max-time", "0.2")


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def gone(pids):
    return not any(pathlib.Path(f"/proc/{pid}").exists() and
                   pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z" for pid in pids)


def started_run(shm, csv, temporary, ranks=4):
    """A run in a /dev/shm of its own that has written its first row; returns (launcher, pids of everything below it)."""
    process = start([*shm.enter, *mpiexec_command(ranks, "tp-allgather", "--tp", ranks, *LONG, "--csv", csv)], env={"TMPDIR": temporary})
    try:
        wait_for(lambda: csv.exists() and csv.read_text().count("\n") > 1 or process.poll() is not None, 30, "the first row")
        assert process.poll() is None, process.communicate()
    except AssertionError:
        end_group(process)
        raise
    return process, descendants(process.pid)


def check_left(shm, csv, temporary, family):
    wait_for(lambda: gone(family), 5, f"processes {family} gone")
    assert [name for name in shm.names() if "weft" in name] == []
    assert list(temporary.iterdir()) == []
    rows = read_rows(csv)   # whole rows, or it fails
    assert all(row["verified"] == "true" or row["skip_reason"] for row in rows) and rows


def test_ten_kills_leave_nothing(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    with private_shm() as shm:
        for attempt in range(10):
            csv = folder / f"r{attempt}.csv"
            process, family = started_run(shm, csv, temporary, ranks=2 if attempt else 4)
            ranks = rank_pids(process, "tp-allgather")
            assert ranks
            time.sleep(random.random() * 0.3)
            for pid in [*ranks, process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            process.communicate(timeout=20)
            check_left(shm, csv, temporary, family)
            assert status_of(csv)["state"] != "complete"
        again = run([*shm.enter, *mpiexec_command(4, "tp-allgather", "--transport", "shm", *QUICK, "--csv", folder / "again.csv")])
        assert again.code == 0, again
        assert_all_verified(read_rows(folder / "again.csv"))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signals_to_the_launcher(folder, name):
    temporary = folder / "tmp"
    temporary.mkdir()
    csv = folder / "r.csv"
    with private_shm() as shm:
        process, family = started_run(shm, csv, temporary, ranks=2)
        process.send_signal(getattr(signal, name))
        process.communicate(timeout=20)
        assert process.returncode != 0
        check_left(shm, csv, temporary, family)
        assert status_of(csv)["state"] != "complete"


def test_one_rank_dies_all_end(folder):
    temporary = folder / "tmp"
    temporary.mkdir()
    csv = folder / "r.csv"
    with private_shm() as shm:
        process, family = started_run(shm, csv, temporary, ranks=4)
        os.kill(rank_pids(process, "tp-allgather")[2], signal.SIGKILL)
        process.communicate(timeout=20)
        assert process.returncode != 0
        check_left(shm, csv, temporary, family)


def test_names_taken_by_a_stranger_do_no_harm(folder):
    """Every name that a run shows in /dev/shm or TMPDIR is taken, by another user and unreadable, before the next run."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's files")
    stranger = pwd.getpwnam("nobody")
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o1777)
    with private_shm() as shm:
        process, family = started_run(shm, folder / "first.csv", temporary, ranks=2)
        seen = {place: [path.name for path in place.iterdir()] for place in (shm.path, temporary)}
        end_group(process)
        process.communicate(timeout=20)
        wait_for(lambda: gone(family), 5, "the first run gone")
        for place, names in seen.items():
            for name in names:
                path = place / name
                if path.is_file() or not path.exists():
                    path.unlink(missing_ok=True)
                    path.write_bytes(b"x" * 100)
                    os.chown(path, stranger.pw_uid, stranger.pw_gid)
                    path.chmod(0o600)
        result = run([*shm.enter, *mpiexec_command(2, "tp-allgather", "--transport", "shm", *QUICK, "--csv", folder / "second.csv")],
                     env={"TMPDIR": temporary})
    assert result.code == 0, result
    assert_all_verified(read_rows(folder / "second.csv"))


def test_a_closed_pipe_keeps_the_rows(folder):
    """... | head -1: hydra ends a run whose screen is closed (scripts/run.sh does not let it come to that); rows stay whole."""
    csv, document = folder / "r.csv", folder / "r.json"
    words = mpiexec_command(2, "tp-allgather", "--transport", "mpi,shm", *QUICK, "--csv", csv, "--json", document)
    quoted = " ".join(f"'{word}'" for word in words)
    result = run(["bash", "-c", f"{quoted} 2>/dev/null </dev/null | head -n 1 >/dev/null; exit ${{PIPESTATUS[0]}}"])
    assert not result.timed_out, result
    rows = read_rows(csv)
    assert_all_verified(rows)
    assert len(rows) - 1 <= len(read_json(document)["rows"]) <= len(rows)


def test_a_rank_that_stops_is_a_timeout(folder):
    """SIGSTOP on one rank: the others name it and leave with 4, in time."""
    csv = folder / "r.csv"
    process = start(mpiexec_command(2, "tp-allgather", "--transport", "shm", "--sizes", "4K:16M:x2", "--min-time", "0.2", "--max-time", "0.4",
                                    "--timeout", 3, "--csv", csv))
    try:
        wait_for(lambda: csv.exists() and csv.read_text().count("\n") > 1 or process.poll() is not None, 30, "the first row")
        victim = sorted(rank_pids(process, "tp-allgather"))[-1]
        os.kill(victim, signal.SIGSTOP)
        out, err = process.communicate(timeout=30)
    except BaseException:
        end_group(process)
        raise
    assert process.returncode != 0
    assert "rank" in err, err
    assert status_of(csv)["exit_code"] == 4, (status_of(csv), out, err)
