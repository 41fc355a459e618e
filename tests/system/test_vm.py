# label: slow
"""What needs a machine of one's own: a wall clock that is set while a run measures, one processor, an old processor."""
import csv
import datetime
import json
import pathlib

import pytest

from harness import assert_all_verified, mpiexec_command, read_json, read_rows, status_of
from vm_lab import in_guest, run_in_vm

# Sets the wall clock in turns until `done` is there; no process is started in between, so that jumps come in all places.
JUMPS = """
cat >jumps.py <<'END'
import json, pathlib, time
told = {"wall": time.time(), "jumps": []}
while not pathlib.Path("done").exists():
    for step in (3600, -3600, 0.2):
        time.sleep(0.3)
        time.clock_settime(time.CLOCK_REALTIME, time.time() + step)
        told["jumps"].append(step)
pathlib.Path("told.json").write_text(json.dumps(told))
END
monotonic() { cut -d' ' -f1 /proc/uptime; }
python3 jumps.py & jumper=$!
"""
END = """
touch done
wait $jumper
"""
HOUR = 3600.0


def seconds_of(path):
    """From /proc/uptime before and after a command."""
    begin, end = (float(word) for word in path.read_text().split())
    return end - begin


def utc(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()


def samples_of(path):
    """(cell, rank) -> samples in the order of the file."""
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["cell_id"], row["rank"]), []).append(row)
    return found


def test_the_wall_clock_is_set_while_measuring(folder):
    """C32: +1 h, -1 h, +0.2 s each second. Nothing that weft measures, or waits for, follows."""
    measure = mpiexec_command(2, "tp-allgather", "--tp", 2, "--transport", "mpi,shm", "--sizes", "4K", "--min-time", 3, "--max-time", 3,
                              "--timeout", 60, "--csv", "o.csv", "--json", "o.json", "--samples", "s.csv", "--trace", "t.json")
    stopped = mpiexec_command(2, "tp-allgather", "--tp", 2, "--transport", "shm", "--sizes", "4K:16K:x2", "--min-time", 4, "--max-time", 4,
                              "--timeout", 10, "--csv", "stopped.csv")
    script = f"""{JUMPS}
begin=$(monotonic)
{in_guest(measure)} >o.out 2>o.err
echo $? >o.code
echo $begin $(monotonic) >o.seconds
{in_guest(stopped)} >stopped.out 2>stopped.err & run=$!
until [ -e stopped.csv ] && [ $(wc -l <stopped.csv) -gt 1 ] || ! kill -0 $run; do sleep 0.2; done
begin=$(monotonic)
kill -STOP $(pgrep -n -x weft-tp-allgath)
wait $run
echo $? >stopped.code
echo $begin $(monotonic) >stopped.seconds
{END}"""
    result = run_in_vm(folder, script)
    shown = f"{result.out}\n{result.err}\n" + "\n".join(p.read_text()[-2000:] for p in folder.glob("*.err"))
    assert result.code == 0 and (folder / "o.code").read_text().strip() == "0", shown
    told = json.loads((folder / "told.json").read_text())
    assert len(told["jumps"]) >= 9, told
    lasted = seconds_of(folder / "o.seconds")

    rows = assert_all_verified(read_rows(folder / "o.csv"))
    assert {row["transport"] for row in rows} == {"mpi", "shm"}
    check_samples(rows, samples_of(folder / "s.csv"), lasted)
    check_trace(folder / "t.json", lasted)
    check_dates(folder, told["wall"], lasted)

    assert status_of(folder / "stopped.csv")["exit_code"] == 4, shown
    assert 5 < seconds_of(folder / "stopped.seconds") < 60, shown


def check_samples(rows, samples, lasted):
    """Each sample that is kept is there, in order, and none is negative or longer than the run."""
    for row in rows:
        assert 0 < float(row["t_min_us"]) <= float(row["t_max_us"]) < lasted * 1e6, row
        for rank in "01":
            mine = samples[row["cell_id"], rank]
            numbers = [int(sample["iteration"]) for sample in mine]   # every one, or of more than are kept every second, fourth, ...
            stride = numbers[1] - numbers[0]
            assert stride & (stride - 1) == 0 and numbers == list(range(0, stride * (int(row["n"]) + int(row["late"])), stride)), row
            times = [(float(sample["start_us"]), float(sample["end_us"])) for sample in mine]
            assert all(0 <= start <= end for start, end in times)
            assert all(before[1] <= after[0] for before, after in zip(times, times[1:])), "samples overlap"
            assert times[-1][1] - times[0][0] < lasted * 1e6


def check_trace(path, lasted):
    """Begins and durations within the run."""
    events = [event for event in read_json(path)["traceEvents"] if event["ph"] == "X"]
    assert events
    for event in events:
        assert event["ts"] >= 0 and 0 <= event["dur"] < lasted * 1e6, event


def check_dates(folder, wall, lasted):
    """The start is a reading of the wall clock, which was wrong by an hour at most; the end follows from it."""
    status = status_of(folder / "o.csv")
    for text in (read_json(folder / "o.json")["provenance"]["time_utc"], status["started"]):
        assert abs(utc(text) - wall) < HOUR + lasted + 60, (text, wall)
    assert 0 <= utc(status["ended"]) - utc(status["started"]) <= lasted + 1, (status, lasted)


def test_a_machine_with_one_processor(folder):
    """C18: two ranks share the only one; they say so, start by barrier, and do not spin each other away."""
    command = mpiexec_command(2, "tp-allgather", "--tp", 2, "--transport", "mpi,shm", "--sizes", "4K", "--min-time", 0.2, "--max-time", 0.5,
                              "--csv", "o.csv", "--json", "o.json")
    result = run_in_vm(folder, in_guest(command), cpus=1, memory_mb=1024)
    assert result.code == 0, f"{result.out}\n{result.err}"
    rows = assert_all_verified(read_rows(folder / "o.csv"))
    assert {row["transport"] for row in rows} == {"mpi", "shm"}
    for row in rows:
        assert row["sync"] == "barrier", row
        assert row["noise"] == "" or "nan" not in row["noise"], row
        assert float(row["t_p50_us"]) < 1e6, row
    host, = read_json(folder / "o.json")["provenance"]["hosts"]
    assert host["cores"] == 1, host


def test_a_processor_older_than_the_build(folder):
    """A build from a newer login node: one line on one rank, exit code 2, and no illegal instruction."""
    if "avx2" not in pathlib.Path("/proc/cpuinfo").read_text().split():
        pytest.skip("this build asks nothing of a processor: the machine has no AVX2")
    commands = [in_guest(mpiexec_command(2, name, "--csv", "none")) + f" || echo {name} $?" for name in ("pairs", "dp-gradsync")]
    result = run_in_vm(folder, "\n".join(commands), processor="qemu64")
    assert result.out.split() == ["pairs", "2", "dp-gradsync", "2"], f"{result.out}\n{result.err}"
    errors = [line for line in result.err.splitlines() if line.startswith("weft: error: ")]
    assert len(errors) == 2 and all("rank 0 on vm0: this program was built for processors with AVX2" in line for line in errors), result.err
    assert "-DWEFT_ARCH" in errors[0] and "Illegal instruction" not in result.err, result.err
