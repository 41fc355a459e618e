#!/usr/bin/env python3
"""How fast transport verbs is on this machine's RDMA device: against perftest, and against MPI over TCP on the same interface.

Two ranks on this host, through the device (Soft-RoCE too), in turns; medians over the turns. perftest has the same window:
  latency of 8 B      weft-pairs --signal write against ib_write_lat, --signal immediate against ib_send_lat
  bandwidth           weft-pairs against ib_write_bw, 64 KiB and 1 MiB
  collectives         verbs against mpi with UCX_TLS=tcp, 2 and 4 ranks; from 256 KiB against what ib_write_bw -b moves
  bare exchange       ib_write_bw -b -t 1: what two ranks send each other in a collective, and nothing else

Goals: latency at most 1.05 of perftest's, bandwidth at least 0.97; collectives 1.2 times as fast as TCP to 64 KiB, above that at
least 0.9 of ib_write_bw -b. Where a bare exchange on this device would not be 1.2 times as fast as TCP either, the table says how
fast it would be.

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
LONGEST = 300   # seconds of a program, after which something is wrong
PORT = 18700
TIMES_TCP = 1.2
KINDS = ("latency", "bandwidth", "collectives")
SIGNALS = {"write": "ib_write_lat", "immediate": "ib_send_lat"}
BANDWIDTH_SIZES, SMALL_SIZES = (64 * KIB, MIB), (8, 4 * KIB, 64 * KIB)
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

    def weft(self, ranks, program, transport, *options):
        """Rows of a launch. Where verbs is measured MPI only sets it up, by shared memory: over the same interface, its messages
        between the samples would slow what follows them."""
        path = self.study.folder / "launch.csv"
        path.unlink(missing_ok=True)
        words = [launching.find_mpiexec(), "-n", str(ranks), str(self.study.bin_folder / program), "--transport", transport,
                 *map(str, options), "--csv", str(path)]
        environment = {**os.environ, "UCX_TLS": "posix,self"}
        if transport == "mpi":
            environment.update({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.netdev})
        result = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST, check=False, stdin=subprocess.DEVNULL,
                                env=environment)
        if result.returncode != 0:
            raise UsageError(f"{' '.join(words)} failed: {result.stderr.strip()}")
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


def pair_value(rows, test, count, column):
    """Median over both directions."""
    return statistics.median(float(row[column]) for row in rows if row["test"] == test and row["size"] == str(count))


class Turn:
    """Everything once; `found` is {figure: value}."""

    def __init__(self, machine, ranks, quick):
        self.machine, self.ranks, self.quick, self.found = machine, ranks, quick, {}
        self.times = ("--hot", "--min-time", 0.2, "--max-time", 0.5 if quick else 1, "--timeout", 60)

    def latency(self):
        for signal, program in SIGNALS.items():
            line = self.machine.perftest(program, "-s", 8, "-n", 500 if self.quick else 2000)
            rows = self.machine.weft(2, "weft-pairs", "verbs", "--sizes", 8, "--signal", signal, *self.times)
            self.found[program], self.found[signal] = float(line[4]), pair_value(rows, "latency", 8, "t_p50_us")

    def bandwidth(self):
        sizes = ",".join(map(str, BANDWIDTH_SIZES))
        rows = self.machine.weft(2, "weft-pairs", "verbs", "--sizes", sizes, "--window", WINDOW, *self.times)
        for count in BANDWIDTH_SIZES:
            messages = max(WINDOW, (16 if self.quick else 64) * MIB // count)
            line = self.machine.perftest("ib_write_bw", "-s", count, "-n", messages, "-t", WINDOW)
            self.found[f"ib_write_bw {count}"] = float(line[3]) * MIB / 1e9
            self.found[f"bandwidth {count}"] = pair_value(rows, "bandwidth", count, "algbw_GBps")

    def collectives(self):
        line = self.machine.perftest("ib_write_bw", "-b", "-s", MIB, "-n", 64, "-t", WINDOW)
        self.found["both ways"] = float(line[3]) * MIB / 1e9
        for length in SMALL_SIZES:
            line = self.machine.perftest("ib_write_bw", "-b", "-s", length, "-n", 1000, "-t", 1)
            self.found[f"exchange {length}"] = 2 * length / (float(line[3]) * MIB) * 1e6
        for ranks in self.ranks:
            for collective, program in COLLECTIVES.items():
                each = ranks if collective == "all_to_all_v" else 1
                for transport, sizes in (("verbs", (*SMALL_SIZES, MIB)), ("mpi", SMALL_SIZES)):
                    rows = self.machine.weft(ranks, program, transport, "--phase", "comm", "--sizes", ",".join(str(one * each) for one in sizes),
                                             *self.times)
                    for row in rows:
                        if f"/{collective}." in row["cell_id"]:
                            cell = f"{row['transport']} {collective} {ranks} {int(row['size']) // each}"
                            self.found[cell], self.found[f"wire {cell}"] = float(row["t_p50_us"]), float(row["wire_GBps"] or "nan")


def compared(turns, ours, theirs):
    """Median of ours and of theirs, of their ratio in a turn."""
    a, b = ([turn[key] for turn in turns] for key in (ours, theirs))
    return statistics.median(a), statistics.median(b), statistics.median(x / y for x, y in zip(a, b))


class Verdict:
    """The lines of the table, and how many goals are missed."""

    def __init__(self, turns, ranks):
        self.turns, self.ranks, self.lines, self.missed = turns, ranks, [], 0

    def add(self, what, values, goal, at_most, limit=""):
        """`limit`: what to say of a goal that is missed."""
        mine, other, share = values
        bad = share > goal if at_most else share < goal
        self.missed += bad
        self.lines.append((what, number(mine, 3), number(other, 3), number(share, 3), f"{'<=' if at_most else '>='} {goal:g}",
                           f"missed{limit}" if bad else ""))

    def against_tcp(self, collective, ranks, length):
        tcp = f"mpi {collective} {ranks} {length}"
        mpi, verbs, ratio = compared(self.turns, tcp, f"verbs {collective} {ranks} {length}")
        *_, bare = compared(self.turns, tcp, f"exchange {length}")
        self.add(f"{collective}, {ranks} ranks, {size(length)}, us: mpi by tcp", (verbs, mpi, ratio), TIMES_TCP, False,
                 f"; bare exchange: {number(bare, 3)}" if ranks == 2 and bare < TIMES_TCP else "")

    def latency(self):
        for signal, program in SIGNALS.items():
            self.add(f"latency 8 B, {signal}, us: {program}", compared(self.turns, signal, program), 1.05, True)

    def bandwidth(self):
        for count in BANDWIDTH_SIZES:
            self.add(f"bandwidth {size(count)}, GB/s: ib_write_bw",
                     compared(self.turns, f"bandwidth {count}", f"ib_write_bw {count}"), 0.97, False)

    def collectives(self):
        for ranks in self.ranks:
            for collective in COLLECTIVES:
                for length in SMALL_SIZES:
                    self.against_tcp(collective, ranks, length)
                # All ranks' bytes go through the one device, and both directions of ib_write_bw -b do.
                wire = [ranks * turn[f"wire verbs {collective} {ranks} {MIB}"] for turn in self.turns]
                both = [turn["both ways"] for turn in self.turns]
                self.add(f"{collective}, {ranks} ranks, 1 MiB, all ranks' GB/s: ib_write_bw -b",
                         (statistics.median(wire), statistics.median(both), statistics.median(a / b for a, b in zip(wire, both))), 0.9, False)

    def show(self):
        print(*text_table(("verbs against", "verbs", "other", "ratio", "goal", ""), self.lines, left=("verbs against", "goal", "")), sep="\n")
        print(f"{len(self.turns)} turns. The ratio of a time against MPI is MPI's over ours. Missed goals: {self.missed}")
        return 1 if self.missed else 0


def chosen(kinds, of):
    """Does these kinds of figures of a Turn or a Verdict."""
    for kind in kinds:
        getattr(of, kind)()
    return of


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
        turns.append(chosen(arguments.only, Turn(machine, arguments.ranks, arguments.quick)).found)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turns[-1]) + "\n")
    launching.progress("")
    return turns


def main(words):
    made = launching.parser(__doc__, launches=10)
    made.add_argument("--device", default="rxe0", metavar="NAME", help="(default rxe0)")
    made.add_argument("--netdev", default="eth0", metavar="NAME", help="interface of the device, for MPI over TCP (default eth0)")
    made.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    made.add_argument("--ranks", type=launching.positive, nargs="+", default=[2, 4], metavar="N", help="of the collectives (default 2 4)")
    arguments = made.parse_args(words)
    study = launching.Study("show-rdma", arguments)
    try:
        return chosen(arguments.only, Verdict(measured(study, arguments), arguments.ranks)).show()
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"no end after {error.timeout} s: {' '.join(error.cmd)}") from None
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} is not there; install perftest, build weft") from None
    except KeyError as error:
        raise UsageError(f"the turns have no {error}; --only and --ranks say what was measured") from None


if __name__ == "__main__":
    launching.finish(main)
