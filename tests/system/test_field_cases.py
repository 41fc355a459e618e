# label: mpi
"""Situations from the field in which other tools misled people: launchers without PMI, small /dev/shm, foreign locales,
ranks without work, sizes that do not step."""
import collections
import contextlib
import csv as csv_module
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import time

import pytest

from harness import (QUICK, assert_all_verified, assert_no_performance, end_group, mpiexec, mpiexec_command, program, read_json,
                     read_rows, run, start)
from namespaces import private_shm


# ---- a launcher without a matching PMI: n programs of one rank each

@pytest.mark.parametrize("layout", [("--tp", "4"), ()])
@pytest.mark.parametrize("names", [("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")])
def test_singletons_of_a_launcher_refuse(folder, layout, names):
    csv = folder / "one.csv"
    commands = [start([program("tp-allgather"), *layout, *QUICK, "--csv", csv], env={names[0]: rank, names[1]: 4}) for rank in range(4)]
    errors = [process.communicate(timeout=60)[1] for process in commands]
    assert [process.returncode for process in commands] == [2, 2, 2, 2], errors
    (told,) = [text for text in errors if text]   # once, not four times
    assert "promised 4 ranks" in told and "found 1" in told and "srun --mpi=pmi2" in told and "mpiexec" in told
    assert not csv.exists() or not read_rows(csv)


@pytest.mark.parametrize("env", [{}, {"SLURM_NTASKS": 1, "SLURM_PROCID": 0}, {"OMPI_COMM_WORLD_SIZE": 1}])
def test_a_true_one_rank_start_works(folder, env):
    csv = folder / "one.csv"
    result = run([program("tp-allgather"), *QUICK, "--csv", csv], env=env)
    assert result.code == 0, result
    assert {row["world"] for row in assert_all_verified(read_rows(csv))} == {"1"}
    assert "mpiexec" in result.text, "it does not say how to start more ranks"


def test_four_writers_do_not_shred_one_file(folder):
    csv = folder / "one.csv"
    commands = [start([program("tp-allgather"), *QUICK, "--csv", csv], out=subprocess.DEVNULL) for _ in range(4)]
    for process in commands:
        assert process.wait(60) == 0, process.stderr.read()
        process.stderr.close()
    rows = assert_all_verified(read_rows(csv))
    launches = collections.Counter(row["launch_id"] for row in rows)
    assert len(launches) == 4 and len(set(launches.values())) == 1
    assert csv.read_text().count("launch_id") == 1, "a second header"


# ---- a small /dev/shm

@pytest.mark.parametrize("size", ["64m", "1m"])
def test_small_dev_shm(folder, size):
    csv = folder / "o.csv"
    with private_shm(size) as shm:
        result = run([*shm.enter, *mpiexec_command(4, "tp-allgather", "--tp", 4, "--transport", "shm,mpi", "--sizes", "4K:64M:x4",
                                                   "--min-time", 0, "--max-time", "0.02", "--csv", csv)], timeout=150)
        left = shm.names()
    check_short_of_room(result, csv)
    assert result.code == 0, result   # neither transport needs /dev/shm to hold its messages
    assert {row["transport"] for row in read_rows(csv) if not row["skip_reason"]} == {"shm", "mpi"}
    assert not [name for name in left if "weft" in name]


def check_short_of_room(result, csv):
    """Measured and verified, or skipped with the numbers; never a signal, never half-written data."""
    assert "Bus error" not in result.text and "signal 7" not in result.text.lower(), result
    rows = read_rows(csv) if csv.exists() else []
    for row in rows:
        if row["skip_reason"]:
            assert_no_performance(row)
            assert any(char.isdigit() for char in row["skip_reason"]), row["skip_reason"]
        else:
            assert row["verified"] == "true", row
    assert result.code != 0 or rows, result


def test_dev_shm_filled_by_somebody_else(folder):
    csv = folder / "o.csv"
    with private_shm("64m") as shm:
        process = start([*shm.enter, *mpiexec_command(2, "tp-allgather", "--transport", "shm,mpi", "--sizes", "4K:4M:x4", "--min-time", 0,
                                                      "--max-time", "0.2", "--csv", csv)])
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and not (csv.exists() and csv.read_text().count("\n") > 1):
                assert time.monotonic() < deadline, "no first row"
                time.sleep(0.05)
            with open(shm.path / "filler", "wb") as filler, contextlib.suppress(OSError):
                while filler.write(bytes(1 << 16)):   # until nothing is left
                    filler.flush()
            out, err = process.communicate(timeout=120)
        finally:
            end_group(process)
    assert process.returncode in (0, 1, 2), out + err
    assert "Bus error" not in out + err
    assert all(row["verified"] == "true" or row["skip_reason"] for row in read_rows(csv))


# ---- two runs at once, ranks that all are PID 1, no ptrace between ranks

def test_two_runs_at_once_with_default_output(folder):
    commands = [start(mpiexec_command(2, "tp-allgather", "--transport", "shm", *QUICK), cwd=folder) for _ in range(2)]
    texts = [process.communicate(timeout=120) for process in commands]
    assert [process.returncode for process in commands] == [0, 0], texts
    files = [path for path in folder.rglob("*.csv") if "flows" not in path.name and "samples" not in path.name]
    assert files, f"no rows below {folder}: {sorted(folder.rglob('*'))}"
    launches = collections.Counter(row["launch_id"] for path in files for row in assert_all_verified(read_rows(path)))
    assert len(launches) == 2 and len(set(launches.values())) == 1


@pytest.mark.parametrize("more", [(), ("--mount-proc",)])
def test_ranks_that_all_are_pid_1(folder, more):
    if run(["unshare", "-r", "--pid", "--fork", *more, "true"]).code:
        pytest.skip("user and PID namespaces are not allowed here")
    csv = folder / "r.csv"
    result = mpiexec(2, "tp-allgather", "--transport", "mpi,shm", *QUICK, "--csv", csv, prefix=["unshare", "-r", "--pid", "--fork", *more])
    assert result.code == 0, result
    assert {row["world"] for row in assert_all_verified(read_rows(csv))} == {"2"}


def check_works_or_says_which_call(result, csv):
    if result.code == 0:
        rows = read_rows(csv)
        assert all(row["verified"] == "true" or row["skip_reason"] for row in rows) and rows, result
        assert {row["world"] for row in rows} == {"2"}
    else:   # by us, or by MPI while it starts
        assert not result.timed_out and any(word in result.text for word in ("memfd", "open(", "/proc", "mmap", "pidfd")), result
        assert not csv.exists() or not [row for row in read_rows(csv) if row["verified"] == "true"]


def test_without_ptrace_between_ranks(folder):
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    if not scope.exists() or not os.access(scope, os.W_OK):
        pytest.skip("this kernel has no yama/ptrace_scope to set")
    if scope.read_text().strip() == "3":
        check_works_or_says_which_call(mpiexec(2, "tp-allgather", "--transport", "shm", *QUICK, "--csv", folder / "r.csv"), folder / "r.csv")
        return
    pytest.skip("ptrace_scope 3 cannot be taken back, so it is only tested where it is set")


# ---- a decimal comma, and other time zones

def test_decimal_comma(folder):
    if not shutil.which("localedef") or not pathlib.Path("/usr/share/i18n/locales/de_DE").exists():
        pytest.skip("localedef and the locale sources (package locales) are needed")
    made = run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"])
    assert (folder / "de_DE.UTF-8").exists(), made
    options = ("--transport", "mpi,shm", "--model", "tiny", "--precision", "0.5%", "--min-time", "0.02", "--max-time", "0.05")
    heads = {}
    for name, env in (("de", {"LOCPATH": folder, "LC_ALL": "de_DE.UTF-8"}), ("c", {"LC_ALL": "C"})):
        csv, document = folder / f"{name}.csv", folder / f"{name}.json"
        result = mpiexec(2, "tp-allgather", *options, "--csv", csv, "--json", document, env=env)
        assert result.code == 0, result
        heads[name] = csv.read_text().splitlines()[0]
        rows = assert_all_verified(read_rows(csv))
        for row in rows:
            assert not row["t_p50_us"] or float(row["t_p50_us"]) > 0   # blank where a busy machine left no valid sample
        assert any(row["t_p50_us"] for row in rows)
        assert {row["cell_id"] for row in rows} == {row["cell_id"] for row in read_json(document)["rows"] if not row.get("skip_reason")}
        heads[name + " cells"] = sorted({row["cell_id"] for row in rows})
    assert heads["de"] == heads["c"] and heads["de cells"] == heads["c cells"]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns", "Etc/GMT+12"])
def test_times_are_utc(folder, zone):
    document = folder / "r.json"
    result = mpiexec(2, "tp-allgather", *QUICK, "--phase", "comm", "--csv", folder / "r.csv", "--json", document, env={"TZ": zone})
    assert result.code == 0, result
    import datetime
    text = json.dumps(read_json(document)["provenance"])
    stamps = [word for word in text.split('"') if len(word) == 20 and word[4:5] == "-" and word.endswith("Z")]
    assert stamps, text
    told = datetime.datetime.strptime(stamps[0], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    assert abs((datetime.datetime.now(datetime.timezone.utc) - told).total_seconds()) < 120


# ---- experts without tokens, ranks without anything to send

@pytest.mark.parametrize("ranks,options", [
    (4, ("--ep", 4, "--seq", 2, "--micro-batch", 1)),
    (4, ("--ep", 4, "--seq", 8, "--skew", 60, "--top-k", 1)),
    (7, ("--ep", 7, "--experts", 7, "--seq", 1)),
    (2, ("--ep", 2, "--seq", 1, "--top-k", 1)),
])
def test_experts_without_tokens(folder, ranks, options):
    rows = moe(folder, ranks, *options)
    assert {row["direction"] for row in rows} >= {"forward"}


TOKEN_BYTES = 64 * 4   # of tiny, f32
MATRICES = {"zero row": lambda s, d: 0 if s == 1 else s + d + 1, "zero column": lambda s, d: 0 if d == 2 else s + d + 1,
            "all zeros": lambda s, d: 0, "diagonal": lambda s, d: 5 * (s == d), "one cell": lambda s, d: 9 * (s == 0 and d == 3)}


@pytest.mark.parametrize("name", MATRICES)
def test_token_matrices_with_holes(folder, name):
    matrix, flows = folder / "matrix.csv", folder / "flows.csv"
    cells = [[MATRICES[name](s, d) for d in range(4)] for s in range(4)]
    matrix.write_text("".join(",".join(map(str, row)) + "\n" for row in cells))
    rows = moe(folder, 4, "--ep", 4, "--token-matrix", matrix, "--phase", "comm", "--flows", flows, skips=name == "all zeros")
    moving = any(cells[s][d] for s, d in itertools.permutations(range(4), 2))
    with flows.open(newline="") as file:
        pairs = {(int(f["source"]), int(f["destination"])) for f in csv_module.DictReader(file)
                 if f["kind"] == "payload" and int(f["bytes"]) >= TOKEN_BYTES}   # less is the exchange of counts
    allowed = {(s, d) for s, d in itertools.permutations(range(4), 2) if cells[s][d] or cells[d][s]}   # dispatch, and back in combine
    assert pairs <= allowed, "tokens between ranks that have none for each other"
    assert bool(pairs) == moving
    assert rows


def moe(folder, ranks, *options, skips=False):
    csv, document = folder / "r.csv", folder / "r.json"
    result = mpiexec(ranks, "moe-alltoall", *QUICK, "--transport", "mpi,shm", "--timeout", 60, *options, "--csv", csv, "--json", document,
                     timeout=240)
    assert result.code == 0, result
    read_json(document)
    rows = read_rows(csv)
    for row in rows:
        assert not {"nan", "-nan", "inf", "-inf"} & {value.lower() for value in row.values()}, row
    return rows if skips else assert_all_verified(rows)


# ---- --sizes: suffixes, steps that do not step, ends that are missed

K, M = 1024, 1024**2
SERIES = [  # what is typed, the sizes it stands for
    ("4:64:x2", [4, 8, 16, 32, 64]),
    ("1K:8K:x2", [K, 2 * K, 4 * K, 8 * K]),
    ("8:1KB:x5", [8, 40, 200, 1000]),
    ("8:1KiB:x2", [8, 16, 32, 64, 128, 256, 512, 1024]),
    ("64K:70K:+2K", [64 * K, 66 * K, 68 * K, 70 * K]),
    ("1e6:1e6", [1_000_000]),
    ("64", [64]),
    ("8,4K:8K:x2", [8, 4 * K, 8 * K]),
]
REFUSED = ["8:1G:x1", "64M:70M:2M", "0:64:x2", "8:8Gx2", "8:1G:x1.5", "-8:8:x2", "8:99999999T:x2", "8:64:x0", "8:64:+0", "8:64:+-8", "8:64:",
           "x", "8:64:x2:x2", "1.5", "8:1Q:x2", ""]


@pytest.mark.parametrize("text,sizes", SERIES)
def test_sizes_that_step(folder, text, sizes):
    csv = folder / "r.csv"
    result = mpiexec(2, "tp-allgather", "--transport", "shm", "--sizes", text, "--min-time", 0, "--max-time", "0.01", "--csv", csv)
    assert result.code == 0, result
    rows = read_rows(csv)
    assert sorted({int(row["size"]) for row in rows}) == sizes
    for row in assert_all_verified(rows):
        assert int(row["bytes_wire"]) == 2 * int(row["size"]), "the row has not the size that was sent"


@pytest.mark.parametrize("text", REFUSED)
def test_sizes_that_are_refused(folder, text):
    result = mpiexec(2, "tp-allgather", "--transport", "shm", f"--sizes={text}", "--csv", folder / "r.csv", timeout=20)
    assert result.code == 2 and not result.timed_out, result
    assert text in result.err and "--sizes" in result.err


@pytest.mark.parametrize("text", ["5:5", "1:1K:x2", "3:29:x3", "1K:1:x2", " 8:16:x2"])
def test_sizes_of_odd_kinds(folder, text):
    """Not a multiple of the element, an end that is missed, a start above the end, a blank: run as told, or refused, never rounded."""
    csv = folder / "r.csv"
    result = mpiexec(2, "tp-allgather", "--transport", "shm", f"--sizes={text}", "--min-time", 0, "--max-time", "0.01", "--csv", csv,
                     timeout=30)
    assert result.code in (0, 2), result
    if result.code == 2:
        assert text.strip() in result.err or any(part in result.err for part in text.split(":")), result
        return
    for row in read_rows(csv):
        assert row["skip_reason"] or int(row["bytes_wire"]) == 2 * int(row["size"])


# ---- a CPU quota and a cpuset: two cores shown, one had

CPU = pathlib.Path("/sys/fs/cgroup/cpu")


@contextlib.contextmanager
def cpu_group(quota_us):
    """Words before a command that run it in a control group with this CPU quota of each 100 ms."""
    if not os.access(CPU / "cpu.cfs_quota_us", os.W_OK) and not os.access(CPU / "cgroup.procs", os.W_OK):
        pytest.skip("cgroup v1's cpu controller is not writable here")
    group = CPU / f"weft-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group here: {error}")
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        yield group, ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]
    finally:
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text().strip() and time.monotonic() < deadline:
            time.sleep(0.1)
        group.rmdir()


@pytest.mark.parametrize("quota_us,words", [(100000, "1 CPU (100000 of each 100000 us"), (50000, "0.5 CPU (50000 of each 100000 us")])
def test_a_cpu_quota_is_told_and_marks_the_cells(folder, quota_us, words):
    csv, document = folder / "r.csv", folder / "r.json"
    with cpu_group(quota_us) as (group, enter):
        result = run([*enter, *mpiexec_command(2, "tp-allgather", "--transport", "shm", "--sizes", "64K", "--min-time", "0.4",
                                               "--max-time", "0.8", "--csv", csv, "--json", document)], timeout=150)
        throttled = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())["throttled_time"]
    assert result.code == 0, result
    (host,) = read_json(document)["provenance"]["hosts"]
    assert host["cpu_quota"].startswith(words), host
    assert host["usable_cpus"], host
    rows = assert_all_verified(read_rows(csv))
    told = sum(float(row["throttled_us"]) for row in rows)
    assert told <= int(throttled) / 1e3 + 1
    for row in rows:
        assert ("throttled" in row["noise"]) == (float(row["throttled_us"]) > 0), row
    if int(throttled) < 1e9:   # where other work takes the cores, the ranks do not come to use up their quota
        pytest.skip(f"the kernel throttled the run for {int(throttled) / 1e6:.0f} ms only")
    assert told > 0, "throttled, and no row says so"


def test_ranks_bound_inside_a_cpuset_of_one(folder):
    csv, document = folder / "r.csv", folder / "r.json"
    result = run(["taskset", "-c", "0", *mpiexec_command(2, "tp-allgather", *QUICK, "--transport", "mpi,shm", "--csv", csv, "--json",
                                                         document, launcher=("-bind-to", "core"))])
    assert result.code == 0, result
    (host,) = read_json(document)["provenance"]["hosts"]
    told = sum(int(part.partition("-")[2] or part.partition("-")[0]) - int(part.partition("-")[0]) + 1 for part in host["usable_cpus"].split())
    for row in assert_all_verified(read_rows(csv)):
        if told < 2:   # hydra may bind to cores outside of the set that it was started in
            assert row["sync"] == "barrier" and row["binding"] == "0", row


def test_without_numa_in_sysfs(folder):
    """A container's /sys: NUMA is unknown, not node 0 or -1."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not pathlib.Path("/sys/devices/system/node").exists():
        pytest.skip("hiding /sys/devices/system/node needs root and unshare")
    document = folder / "r.json"
    words = mpiexec_command(2, "tp-allgather", *QUICK, "--csv", folder / "r.csv", "--json", document)
    script = 'mount --make-rprivate / && mount -t tmpfs tmpfs /sys/devices/system/node || exit 77; exec "$@"'
    result = run(["unshare", "-m", "sh", "-c", script, "sh", *words])
    if result.code == 77:
        pytest.skip("no mounts allowed here")
    assert result.code == 0, result
    assert_all_verified(read_rows(folder / "r.csv"))
    (host,) = read_json(document)["provenance"]["hosts"]
    assert host["numa_nodes"] is None, host
    assert all(interface["numa"] is None for interface in host["interfaces"]), host


# ---- a time limit, Ctrl-C, a closed pipe: what was measured stays

MANY_CELLS = ("--transport", "shm,mpi", "--sizes", "4K:4M:x2", "--min-time", "0.02", "--max-time", "0.05", "--benchmark_repetitions=50")


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "KILL"])
def test_a_time_limit_at_a_random_moment(folder, name):
    for attempt in range(3):
        csv, document, samples = (folder / f"{attempt}.{kind}" for kind in ("csv", "json", "samples"))
        seconds = 1.5 + 2 * random.random()
        result = run(["timeout", "-s", name, f"{seconds:.2f}",
                      *mpiexec_command(2, "tp-allgather", *MANY_CELLS, "--csv", csv, "--json", document, "--samples", samples)], timeout=40)
        assert result.code != 0 and not result.timed_out, result
        if not csv.exists():   # it had not come to that
            continue
        rows = read_rows(csv)
        assert len(rows) - 1 <= len(read_json(document)["rows"]) <= len(rows) + 1, f"after {seconds} s"
        assert samples.read_bytes().endswith(b"\n")
        assert_the_status_tells(csv)


def assert_the_status_tells(csv):
    status = pathlib.Path(f"{csv}.status.json")
    deadline = time.monotonic() + 5
    while status.exists() and read_json(status)["state"] == "running":
        assert time.monotonic() < deadline, "still running"
        time.sleep(0.05)
    if status.exists():
        told = read_json(status)
        assert told["state"] == "incomplete" and told["exit_code"] == 3 and told["why"], told


def test_a_reader_that_leaves(folder):
    """... | head -n 3"""
    csv = folder / "r.csv"
    words = " ".join(f"'{word}'" for word in mpiexec_command(2, "tp-allgather", *QUICK, "--transport", "mpi,shm", "--csv", csv))
    result = run(["bash", "-c", f"{words} </dev/null 2>&1 | head -n 3 >/dev/null"])
    assert not result.timed_out, result
    assert_all_verified(read_rows(csv))
