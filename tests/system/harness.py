"""What the system tests share: starting programs under mpiexec with a deadline, and reading what they wrote.

    result = mpiexec(4, "tp-allgather", "--csv", folder / "rows.csv", *QUICK)
    assert result.code == 0, result
    rows = read_rows(folder / "rows.csv")

Every child gets /dev/null as standard input, an environment without any launcher's variables, and a process group of
its own, which alone is killed when the deadline passes.
"""
import contextlib
import csv
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WEFT_BUILD", TREE / "build"))
PATTERNS = ("tp-allgather", "row-allreduce", "pp-sendrecv", "dp-gradsync", "moe-alltoall")
DIMENSION = dict(zip(PATTERNS, ("tp", "tp", "pp", "dp", "ep")))
QUICK = ("--min-time", "0", "--max-time", "0.02", "--model", "tiny")
LAUNCHER_VARIABLES = ("PMI_", "PMI2_", "PMIX_", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL", "OMPI_", "SLURM_")
PERFORMANCE = ("t_min_us", "t_p50_us", "t_max_us", "t_mean_us", "algbw_GBps", "busbw_GBps", "wire_GBps")


@dataclasses.dataclass
class Result:
    """How a command ended. `code` is -9 and `timed_out` true where the deadline passed."""

    command: str
    code: int
    out: str
    err: str
    seconds: float
    timed_out: bool = False

    @property
    def text(self):
        return self.out + self.err

    def __str__(self):
        return (f"$ {self.command}\ncode {self.code}, {self.seconds:.1f} s"
                f"{' TIMED OUT' if self.timed_out else ''}\n--- out\n{self.out[-6000:]}\n--- err\n{self.err[-6000:]}")

    __repr__ = __str__


def program(name):
    """Path of a built program; fails, with the remedy, where it was not built."""
    path = BUILD / "bin" / f"weft-{name}"
    assert path.exists(), f"{path} is not built: cmake -S . -B build && cmake --build build"
    return path


def find_mpiexec():
    """MPICH's launcher, also where another MPI is installed beside it."""
    found = next(filter(None, map(shutil.which, ("mpiexec.mpich", "mpiexec.hydra", "mpiexec"))), None)
    assert found, "no mpiexec: install mpich"
    return found


def clean_environment(extra=None):
    """This environment without what an outer launcher left; `extra` on top, a value None takes a name out."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    for name, value in (extra or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = str(value)
    return env


def start(command, *, env=None, cwd=None, out=subprocess.PIPE, err=subprocess.PIPE, **more):
    """Popen in a process group of its own."""
    return subprocess.Popen([str(word) for word in command], stdin=more.pop("stdin", subprocess.DEVNULL),
                            stdout=out, stderr=err, text=True, env=clean_environment(env), cwd=cwd,
                            start_new_session=True, **more)


def run(command, *, env=None, timeout=120, cwd=None, **more):
    """Runs to the end or to the deadline."""
    began = time.monotonic()
    process = start(command, env=env, cwd=cwd, **more)
    timed_out = False
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(process)
        out, err = process.communicate()
    shown = " ".join(str(word) for word in command)
    return Result(shown, process.returncode, out or "", err or "", time.monotonic() - began, timed_out)


def end_group(process):
    """Asks the launcher to end its ranks, then kills what is left of the group and of its descendants."""
    family = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        pass
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def descendants(pid):
    """Pids below `pid`, by /proc."""
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(words[1]), []).append(int(entry.parent.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def rank_pids(process, name):
    """Pids of the ranks of program `name` below a launcher."""
    command = f"weft-{name}"[:15]
    found = []
    for pid in descendants(process.pid):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == command:
                found.append(pid)
        except OSError:
            continue
    return found


@contextlib.contextmanager
def other_load(processes):
    """So many processes that take all the processor time they get."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def mpiexec(ranks, name, *arguments, launcher=(), prefix=(), **more):
    """Runs weft-NAME on `ranks` ranks; `launcher` are mpiexec's own options, `prefix` a command before the program."""
    return run(mpiexec_command(ranks, name, *arguments, launcher=launcher, prefix=prefix), **more)


def mpiexec_command(ranks, name, *arguments, launcher=(), prefix=()):
    return [find_mpiexec(), *launcher, "-n", ranks, *prefix, program(name), *arguments]


def read_rows(path):
    """Rows of a CSV; every row must be whole."""
    text = pathlib.Path(path).read_bytes().decode("utf-8")
    assert text.endswith("\n"), f"{path}: the last row is torn"
    rows = list(csv.DictReader(text.splitlines()))
    for row in rows:
        assert None not in row and None not in row.values(), f"{path}: a row with another number of fields: {row}"
    return rows


def read_json(path):
    """A strict reading: NaN and Infinity are no JSON."""

    def refuse(word):
        raise ValueError(f"{path}: {word} is not JSON")

    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"), parse_constant=refuse)


def status_of(csv_path):
    """The status file beside a CSV."""
    return read_json(f"{csv_path}.status.json")


def assert_all_verified(rows):
    """At least one row was measured, and all that were are verified."""
    measured = [row for row in rows if not row["skip_reason"]]
    assert measured, "no row was measured"
    wrong = [row for row in measured if row["verified"] != "true"]
    assert not wrong, f"not verified: {wrong[0]}"
    return measured


def assert_no_performance(row):
    """A row without a valid measurement has no value that somebody could take for one."""
    shown = {name: row[name] for name in PERFORMANCE if row[name]}
    assert not shown, f"performance values in a row that must have none: {shown}"


def error_lines(result, program_name=None):
    """Lines that report an error (not empty, not the launcher's own report of exit codes)."""
    noise = ("=", "|", "YOUR APPLICATION", "EXIT CODE", "CLEANING UP", "This typically", "Please see")
    lines = [line.strip() for line in result.err.splitlines()]
    return [line for line in lines if line and not line.startswith(noise)]
