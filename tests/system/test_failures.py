# label: mpi
"""A rank that stops, dies or leaves, a full disk, a signal: no hang, nothing left behind, nothing lost, said once."""
import contextlib
import os
import pathlib
import shutil
import signal
import threading
import time

import pytest

from harness import (BUILD, assert_all_verified, descendants, end_group, error_lines, mpiexec, mpiexec_command, rank_pids, read_rows,
                     run, start, status_of)
from namespaces import private_shm

TIMEOUT = 3
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def alive(pids):
    """Those that are neither gone nor zombies."""
    found = []
    for pid in pids:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


class Launch:
    """A run of many short cells in a /dev/shm of its own; `fail` makes something go wrong after the first rows."""

    def __init__(self, folder, transport, ranks=2, more=(), prefix=()):
        self.csv, self.temporary = folder / "r.csv", folder / "tmp"
        self.temporary.mkdir()
        self.command = mpiexec_command(ranks, "tp-allgather", "--transport", transport, "--sizes", "4K:1M:x2", "--min-time", "0.05",
                                       "--max-time", "0.1", "--timeout", TIMEOUT, "--csv", self.csv, "--benchmark_repetitions=30", *more,
                                       prefix=prefix)

    def until_failed(self, fail, *, rows=2, ends_within=25):
        """Runs it, calls `fail(process)` when it has written some rows, returns (code, stderr, seconds from there to the end)."""
        with private_shm() as shm:
            process = start([*shm.enter, *self.command], env={"TMPDIR": self.temporary})
            family = []
            try:
                wait_for(lambda: self.written() >= rows or process.poll() is not None, 60, "the first rows")
                assert process.poll() is None, process.communicate()
                family = descendants(process.pid)
                fail(process)
                began = time.monotonic()
                _, err = process.communicate(timeout=ends_within)
                seconds = time.monotonic() - began
                wait_for(lambda: not alive(family), 5, f"processes {family} gone")
                assert [name for name in shm.names() if "weft" in name] == []
            finally:
                end_group(process)
                for pid in alive(family):
                    os.kill(pid, signal.SIGKILL)
        assert list(self.temporary.iterdir()) == []
        assert_all_verified(read_rows(self.csv))   # whole rows, or it fails
        return process.returncode, err, seconds

    def written(self):
        return self.csv.read_text().count("\n") - 1 if self.csv.exists() else 0

    def status(self, code):
        status = status_of(self.csv)
        assert (status["state"], status["exit_code"]) == ("incomplete", code), status
        assert 0 <= len(read_rows(self.csv)) - status["rows"] <= 1 and status["ended"], status   # a row may be written while it dies
        return status["why"]


def victim(process, rank):
    """Pid of a rank: ranks are started in order."""
    return sorted(rank_pids(process, "tp-allgather"))[rank]




def told(err):
    return [line for line in err.splitlines() if line.startswith("weft:")]


@pytest.mark.parametrize("stopped", [0, 1])
@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_a_stopped_rank_is_named(folder, transport, stopped):
    launch = Launch(folder, transport)
    code, err, seconds = launch.until_failed(lambda process: os.kill(victim(process, stopped), signal.SIGSTOP))
    assert code == 4, err
    assert seconds < TIMEOUT + 10
    (line,) = told(err)
    assert f"missing: rank {stopped} on " in line and "stopped" in line and "waiting: " in line, line
    assert "tp-allgather" in line.split("missing:")[1].split("waiting:")[0], "not what it was doing"
    why = launch.status(4)
    assert f"rank {stopped}" in why and "stopped" in why


def test_two_stopped_ranks_of_three(folder):
    launch = Launch(folder, "shm", ranks=3)
    code, err, _ = launch.until_failed(lambda process: [os.kill(victim(process, rank), signal.SIGSTOP) for rank in (0, 2)])
    assert code == 4, err
    (line,) = told(err)
    missing, waiting = line.split("missing:")[1].split("waiting:")
    assert "0" in missing and "2" in missing and "rank 1 on" in waiting, line


@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_a_rank_whose_thread_is_stuck(folder, transport):
    """Its process lives and answers, its work does not go on."""
    if not os.access(FREEZER / "tasks", os.W_OK):
        pytest.skip("a single thread is frozen through cgroup v1's freezer, which is not writable here")
    group = FREEZER / f"weft-test-{os.getpid()}"
    group.mkdir()

    def freeze(process):
        (group / "tasks").write_text(str(victim(process, 1)))
        (group / "freezer.state").write_text("FROZEN")
        threading.Thread(target=thaw_when_told).start()

    def thaw_when_told():   # a frozen thread cannot even be killed
        with contextlib.suppress(AssertionError):
            wait_for(lambda: status_of(launch.csv)["state"] != "running", 20, "the last word")
        (group / "freezer.state").write_text("THAWED")

    launch = Launch(folder, transport)
    try:
        code, err, _ = launch.until_failed(freeze, ends_within=30)
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_for(lambda: not (group / "tasks").read_text().strip(), 10, "the frozen rank gone")
        group.rmdir()
    assert code == 4, err
    (line,) = told(err)
    assert "missing: rank 1 on " in line and "blocked in the kernel" in line, line
    launch.status(4)


@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_a_killed_rank(folder, transport, killed):
    launch = Launch(folder, transport)
    code, err, seconds = launch.until_failed(lambda process: os.kill(victim(process, killed), signal.SIGKILL))
    assert code != 0 and seconds < 10, err
    wait_for(lambda: status_of(launch.csv)["state"] != "running", 5, "a last word in the status file")
    why = launch.status(3)
    assert "measuring" in why or "setting up" in why or "verifying" in why, why
    assert f"rank {killed}" in why or "another rank" in why, why


EXITS = 'if [ "$PMI_RANK" = 1 ]; then "$@" & until [ $(wc -l < "$CSV") -gt 4 ]; do sleep 0.1; done; kill -9 $!; exit 0; else exec "$@"; fi'


@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_a_rank_that_exits_early(folder, transport):
    """With exit code 0, as a rank does that calls exit() somewhere."""
    launch = Launch(folder, transport, prefix=["env", f"CSV={folder}/r.csv", "sh", "-c", EXITS, "sh"])
    launch.csv.touch()
    launch.until_failed(lambda process: None, rows=1)   # hydra's own code may be 0 then
    wait_for(lambda: status_of(launch.csv)["state"] != "running", 5, "a last word in the status file")
    launch.status(3)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_to_the_launcher(folder, name):
    launch = Launch(folder, "mpi,shm")
    code, err, seconds = launch.until_failed(lambda process: process.send_signal(getattr(signal, name)))
    assert code != 0 and seconds < 10, err
    wait_for(lambda: status_of(launch.csv)["state"] != "running", 5, "a last word in the status file")
    launch.status(3)


def test_ctrl_c(folder):
    """SIGINT to the whole process group, as a terminal sends it."""
    launch = Launch(folder, "shm")
    code, err, _ = launch.until_failed(lambda process: os.killpg(process.pid, signal.SIGINT))
    assert code != 0, err
    wait_for(lambda: status_of(launch.csv)["state"] != "running", 5, "a last word in the status file")
    launch.status(3)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_to_a_rank(folder, name):
    """As Slurm sends it before a time limit: said once, by one rank; the launcher's code is 3."""
    launch = Launch(folder, "shm")
    code, err, _ = launch.until_failed(lambda process: [os.kill(victim(process, rank), getattr(signal, name)) for rank in (0, 1)])
    assert code == 3, err
    (line,) = told(err)
    assert "signal" in line and "rows measured so far are kept" in line
    assert "signal" in launch.status(3)


def test_the_launcher_and_its_proxy_are_killed(folder):
    """Nobody is left to end the ranks: they notice it themselves, also for one that is stopped."""
    launch = Launch(folder, "shm")

    def orphan(process):
        ranks = rank_pids(process, "tp-allgather")
        os.kill(victim(process, 1), signal.SIGSTOP)
        launchers = [process.pid, *(pid for pid in descendants(process.pid) if pid not in ranks and comm(pid).startswith("hydra"))]
        for blow in (signal.SIGSTOP, signal.SIGKILL):   # so that a proxy does not see the launcher die, and kill the ranks before its own turn
            for pid in launchers:
                os.kill(pid, blow)

    launch.until_failed(orphan)
    wait_for(lambda: status_of(launch.csv)["state"] != "running", 10, "a last word in the status file")
    assert "launcher" in launch.status(3)


def comm(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


# ---- files

def test_a_full_disk(folder):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a small file system of one's own needs root and unshare")
    small = folder / "small"
    small.mkdir()
    words = mpiexec_command(2, "tp-allgather", "--transport", "shm", "--sizes", "4K:64K:x2", "--min-time", 0, "--max-time", "0.02",
                            "--benchmark_repetitions=40", "--csv", small / "r.csv")
    script = ('mount --make-rprivate / && mount -t tmpfs -o size=64k tmpfs "$1" || exit 77\nshift\n"$@"\ncode=$?\n'
              f'cp "{small}/r.csv" "{folder}/copy.csv"; cp "{small}/r.csv.status.json" "{folder}/copy.csv.status.json" 2>/dev/null; exit $code')
    result = run(["unshare", "-m", "sh", "-c", script, "sh", small, *words])
    if result.code == 77:
        pytest.skip("no mounts allowed here")
    assert result.code == 1, result
    lines = [line for line in error_lines(result) if "cannot write" in line and "r.csv" in line and "No space left" in line]
    assert len(lines) == 1 and "make room" in lines[0], result
    status = status_of(folder / "copy.csv")
    assert status["exit_code"] == 1 and "No space left" in status["why"], status
    assert_all_verified(read_rows(folder / "copy.csv"))


def test_a_csv_that_is_a_full_device(folder):
    result = mpiexec(2, "tp-allgather", "--sizes", "4K", "--min-time", 0, "--max-time", "0.02", "--csv", "/dev/full")
    assert result.code in (1, 2) and not result.timed_out, result
    assert len([line for line in error_lines(result) if "/dev/full" in line and "No space left" in line]) == 1, result


def test_a_closed_pipe(folder):
    """... | head -n 1: the rows that were measured are whole, nobody is left."""
    launch = Launch(folder, "shm")
    words = " ".join(f"'{word}'" for word in launch.command)
    process = start(["bash", "-c", f"{words} 2>&1 </dev/null | head -n 1 >/dev/null"])
    try:
        wait_for(lambda: launch.written() > 2 or process.poll() is not None, 60, "the first rows")
        family = descendants(process.pid)
        process.communicate(timeout=60)
    finally:
        end_group(process)
    wait_for(lambda: not alive(family), 5, "all gone")
    assert_all_verified(read_rows(launch.csv))


# ---- several hosts (UTS namespaces: host names of their own on one machine)

def test_a_host_that_does_not_answer(folder):
    """Its ranks are named; the last word reaches the files on rank 0's host whoever tells."""
    if os.geteuid() != 0 or run(["unshare", "-u", "true"]).code:
        pytest.skip("host names of one's own need root and unshare")
    launch = Launch(folder, "mpi", ranks=3, prefix=["unshare", "-u", "sh", "-c", 'hostname node$PMI_RANK; exec "$@"', "sh"])
    code, err, _ = launch.until_failed(lambda process: os.kill(victim(process, 1), signal.SIGSTOP))
    assert code == 4, err
    (line,) = told(err)
    assert "missing: rank 1 on node1 (the host does not answer); waiting: " in line, line
    assert "rank 0 on node0 (measuring " in line and "rank 2 on node2 (measuring " in line
    assert "rank 1 on node1" in launch.status(4)


@pytest.mark.parametrize("name", ["tp-allgather", "pairs"])
def test_mpi_that_does_not_end(folder, name):
    """All is measured by then: it is kept, the code is the run's, and the ranks are ended. MPICH 4.0 over UCX's tcp did so."""
    csv = folder / "r.csv"
    result = mpiexec(3, name, "--transport", "mpi", "--sizes", 8, "--min-time", 0, "--max-time", 0.05, "--csv", csv,
                     prefix=["env", f"LD_PRELOAD={BUILD}/tests/libhanging-finalize.so"], timeout=60)
    assert result.code == 0 and 9 < result.seconds < 30, result
    lines = result.err.splitlines()
    assert len(lines) == 1 and "weft: warning: rank " in lines[0] and "MPI_Finalize" in lines[0], result
    assert status_of(csv)["state"] == "complete"
    assert_all_verified(read_rows(csv))
