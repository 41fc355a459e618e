#!/usr/bin/env python3
"""How fast transport verbs is on this machine's RDMA device: against perftest, and against MPI over TCP on the same interface.

Two ranks on this host, through the device (Soft-RoCE too), in turns; medians over the turns. perftest has the same window:
  latency of 8 B      weft-pairs --signal write against ib_write_lat, --signal immediate against ib_send_lat
  bandwidth           weft-pairs against ib_write_bw, 64 KiB and 1 MiB
  collectives         verbs against mpi with UCX_TLS=tcp, 2 and 4 ranks; from 256 KiB against what ib_write_bw -b moves

Goals: latency at most 1.05 of perftest's, bandwidth at least 0.97; collectives 1.2 times as fast as TCP to 64 KiB, above that at
least 0.9 of ib_write_bw -b.

Exit code: 0 all goals are met, 1 some are not, 2 usage, or a program that failed.
"""
import csv
import json
import os
import statistics
import subprocess
import time

from weft_analysis import launching
from weft_analysis.rows import UsageError
from weft_analysis.tables import number, size, text_table

KIB, MIB = 1 << 10, 1 << 20
WINDOW = 64
LONGEST = 120   # seconds of a program, after which something is wrong
PORT = 18700
COLLECTIVES = {"all_gather": "weft-tp-allgather", "all_reduce": "weft-row-allreduce", "all_to_all_v": "weft-moe-alltoall"}


class Machine:
    """Starts programs on it; rows are kept in the study's folder."""

    def __init__(self, study, arguments):
        self.study, self.device, self.netdev, self.port = study, arguments.device, arguments.netdev, PORT

    def perftest(self, program, *options):
        """Words of the last line of a perftest client's table; its server runs beside it."""
        self.port += 1   # a port of the last turn may still be in TIME_WAIT
        words = [program, "-d", self.device, "-p", str(self.port), *map(str, options)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                time.sleep(1)
                result = subprocess.run([*words, "127.0.0.1"], capture_output=True, text=True, timeout=LONGEST, check=False)
                server.wait(10)
            finally:
                server.kill()
        lines = [line.split() for line in result.stdout.splitlines() if line.split() and line.split()[0].isdigit()]
        if result.returncode != 0 or not lines:
            raise UsageError(f"{' '.join(words)} failed: {result.stderr.strip() or result.stdout[-300:]}")
        return lines[-1]

    def weft(self, ranks, program, *options):
        """Rows of a launch."""
        path = self.study.folder / "launch.csv"
        path.unlink(missing_ok=True)
        words = [launching.find_mpiexec(), "-n", str(ranks), str(self.study.bin_folder / program), *map(str, options), "--csv", str(path)]
        environment = {**os.environ, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.netdev}
        result = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST, check=False, stdin=subprocess.DEVNULL,
                                env=environment)
        if result.returncode != 0:
            raise UsageError(f"{' '.join(words)} failed: {result.stderr.strip()}")
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


def pair_value(rows, test, count, column):
    """Median over both directions."""
    return statistics.median(float(row[column]) for row in rows if row["test"] == test and row["size"] == str(count))


def one_turn(machine, ranks, quick):
    """{figure: value} of everything once."""
    found = {}
    times = ("--hot", "--min-time", 0.2, "--max-time", 0.5 if quick else 1, "--timeout", 60)
    iterations = 500 if quick else 2000
    found["ib_write_lat"] = float(machine.perftest("ib_write_lat", "-s", 8, "-n", iterations)[4])
    rows = machine.weft(2, "weft-pairs", "--transport", "verbs", "--sizes", 8, "--signal", "write", *times)
    found["write"] = pair_value(rows, "latency", 8, "t_p50_us")
    rows = machine.weft(2, "weft-pairs", "--transport", "verbs", "--sizes", "8,64K,1M", "--window", WINDOW, *times)
    found["immediate"] = pair_value(rows, "latency", 8, "t_p50_us")
    found["ib_send_lat"] = float(machine.perftest("ib_send_lat", "-s", 8, "-n", iterations)[4])
    for count in (64 * KIB, MIB):
        messages = max(WINDOW, (16 if quick else 64) * MIB // count)
        line = machine.perftest("ib_write_bw", "-s", count, "-n", messages, "-t", WINDOW)
        found[f"ib_write_bw {count}"] = float(line[3]) * MIB / 1e9
        found[f"bandwidth {count}"] = pair_value(rows, "bandwidth", count, "algbw_GBps")
    line = machine.perftest("ib_write_bw", "-b", "-s", MIB, "-n", 64, "-t", WINDOW)
    found["both ways"] = float(line[3]) * MIB / 1e9
    sizes = [8, 4 * KIB, 64 * KIB, MIB]
    for count in ranks:
        for collective, program in COLLECTIVES.items():
            each = count if collective == "all_to_all_v" else 1
            rows = machine.weft(count, program, "--transport", "verbs,mpi", "--sizes", ",".join(str(one * each) for one in sizes),
                                "--phase", "comm", *times)
            for row in rows:
                if f"/{collective}." in row["cell_id"]:
                    cell = f"{row['transport']} {collective} {count} {int(row['size']) // each}"
                    found[cell], found[f"wire {cell}"] = float(row["t_p50_us"]), float(row["wire_GBps"] or "nan")
    return found


def compared(turns, ours, theirs):
    """Median of ours and of theirs, of their ratio in a turn."""
    a, b = ([turn[key] for turn in turns] for key in (ours, theirs))
    return statistics.median(a), statistics.median(b), statistics.median(x / y for x, y in zip(a, b))


def show(turns, ranks):
    missed, lines = 0, []

    def add(what, values, goal, at_most):
        nonlocal missed
        mine, other, share = values
        bad = share > goal if at_most else share < goal
        missed += bad
        lines.append((what, number(mine, 3), number(other, 3), number(share, 3), f"{'<=' if at_most else '>='} {goal:g}",
                      "missed" if bad else ""))

    add("latency 8 B, write, us: ib_write_lat", compared(turns, "write", "ib_write_lat"), 1.05, True)
    add("latency 8 B, immediate, us: ib_send_lat", compared(turns, "immediate", "ib_send_lat"), 1.05, True)
    for count in (64 * KIB, MIB):
        add(f"bandwidth {size(count)}, GB/s: ib_write_bw", compared(turns, f"bandwidth {count}", f"ib_write_bw {count}"), 0.97, False)
    for count in ranks:
        for collective in COLLECTIVES:
            for length in (8, 4 * KIB, 64 * KIB):
                mpi, verbs, ratio = compared(turns, f"mpi {collective} {count} {length}", f"verbs {collective} {count} {length}")
                add(f"{collective}, {count} ranks, {size(length)}, us: mpi by tcp", (verbs, mpi, ratio), 1.2, False)
            # All ranks' bytes go through the one device, and both directions of ib_write_bw -b do.
            wire = [count * turn[f"wire verbs {collective} {count} {MIB}"] for turn in turns]
            both = [turn["both ways"] for turn in turns]
            add(f"{collective}, {count} ranks, 1 MiB, all ranks' GB/s: ib_write_bw -b",
                (statistics.median(wire), statistics.median(both), statistics.median(a / b for a, b in zip(wire, both))), 0.9, False)
    print(*text_table(("verbs against", "verbs", "other", "ratio", "goal", ""), lines, left=("verbs against", "goal", "")), sep="\n")
    print(f"{len(turns)} turns. The ratio of a time against MPI is MPI's over ours. Missed goals: {missed}")
    return 1 if missed else 0


def measured(study, arguments):
    """A dict a turn; each is on disk before the next begins."""
    path = study.folder / "turns.jsonl"
    if arguments.reuse:
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {path}: {error}") from None
    machine = Machine(study, arguments)
    study.folder.mkdir(parents=True, exist_ok=True)
    turns = []
    for turn in range(study.launches):
        launching.progress(f"turn {turn + 1} of {study.launches}")
        turns.append(one_turn(machine, arguments.ranks, arguments.quick))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turns[-1]) + "\n")
    launching.progress("")
    return turns


def main(words):
    made = launching.parser(__doc__, launches=10)
    made.add_argument("--device", default="rxe0", metavar="NAME", help="(default rxe0)")
    made.add_argument("--netdev", default="eth0", metavar="NAME", help="interface of the device, for MPI over TCP (default eth0)")
    made.add_argument("--ranks", type=launching.positive, nargs="*", default=[2, 4], metavar="N",
                      help="of the collectives (default 2 4); no number: leave them out")
    arguments = made.parse_args(words)
    study = launching.Study("show-rdma", arguments)
    try:
        return show(measured(study, arguments), arguments.ranks)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"no end after {error.timeout} s: {' '.join(error.cmd)}") from None
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} is not there; install perftest, build weft") from None
    except KeyError as error:
        raise UsageError(f"the turns have no {error}; --ranks says which collectives were measured") from None


if __name__ == "__main__":
    launching.finish(main)
