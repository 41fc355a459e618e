#!/usr/bin/env python3
"""How fast our shared memory is: against MPI, against this machine's limit, and MPI against a loop without weft.

Sweeps of AllGather, AllReduce (f32) and AllToAllV, sizes of a rank (AllToAllV: to each peer): buffers in the caches (--hot)
and rotated (as in training). Times are medians over launches of the launches' medians; a ratio of contenders is of the same
launches, in pairs.

Goals: mpi / shm >= 2 at 8 B, 3 from 4 to 64 KiB, 2 to 1 MiB, 1.6 to 4 MiB with hot buffers, 1.5 from 4 KiB to 4 MiB with
rotated ones; nowhere slower; shm at least 0.85 of the machine's limit ('bare': the same copies, no synchronisation) from
1 MiB; mpi within 10% of plain-mpi. With 4 and 8 ranks: at most twice the bare copies of all ranks, one after the other on
the cores there are, plus 10 us a rank.

Exit code: 0 all goals are met, 1 some are not, 2 usage, 3 something is missing.
"""
import pathlib

from weft_analysis import contenders, launching
from weft_analysis.tables import number, size, text_table

KIB, MIB = 1 << 10, 1 << 20
PROGRAMS = {"all_gather": "weft-tp-allgather", "all_reduce": "weft-row-allreduce", "all_to_all_v": "weft-moe-alltoall"}
SIZES = (8, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (8, 4 * KIB, 64 * KIB, MIB)
SPEED_UP = {  # cache: (from bytes, to bytes, at least)
    "hot": ((8, 8, 2.0), (4 * KIB, 64 * KIB, 3.0), (64 * KIB, MIB, 2.0), (MIB, 4 * MIB, 1.6)),
    "rotated": ((4 * KIB, 4 * MIB, 1.5),),
}
OF_BARE, OF_BARE_FROM = 0.85, MIB
OF_PLAIN = 0.10
MANY_RANKS, RANK_US = (4, 8), 10.0


def last_level_cache():
    """Bytes, of the first processor; 32 MiB where the system does not tell."""
    found = [32 * MIB]
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text.endswith("K"):
            found.append(int(text[:-1]) * KIB)
    return max(found[1:] or found)


def has_plain(cache, count):
    """plain-mpi rotates through twice the cache, as weft does; in small messages that would be too many buffers."""
    return cache == "hot" or count >= 4 * KIB


def listed(collective, ranks, sizes):
    return ",".join(str(one * contenders.pieces(collective, ranks)) for one in sizes)


def commands(arguments):
    """What is started once per launch: each program hot and rotated, and the plain loop; two ranks, then many."""
    sizes, longest = (QUICK_SIZES, 0.03) if arguments.quick else (SIZES, 0.2)
    times = f"--phase comm --min-time 0.02 --max-time {longest}"
    result = []
    for collective, program in PROGRAMS.items():
        for hot in (" --hot", ""):
            result.append(launching.Command(program, 2, f"--sizes {listed(collective, 2, sizes)} {times}{hot} --transport mpi,shm,bare "
                                            "--algorithm default,native,memcpy,stream"))
        rotated = [one for one in sizes if has_plain("rotated", one)]
        result.append(contenders.plain_command(collective, 2, sizes, f"--hot --time {longest}"))
        result.append(contenders.plain_command(collective, 2, rotated, f"--rotate {2 * last_level_cache()} --time {longest}"))
        few = QUICK_SIZES[:2] if arguments.quick else QUICK_SIZES
        result += [launching.Command(program, ranks, f"--sizes {listed(collective, ranks, few)} {times} --hot --transport mpi,shm,bare")
                   for ranks in (() if arguments.two_ranks else MANY_RANKS)]
    return result


def goal_of(cache, count):
    """Least mpi / shm of a size; 1 where the goal is not to be slower."""
    found = [goal for low, high, goal in SPEED_UP[cache] if low <= count <= high]
    return max(found, default=1.0)


class Contenders:
    """Rows of a study by what moved the bytes. Times are of the state that the machine was in most of the time (where it was
    in others too), or of all where a cell was never measured in that one."""

    def __init__(self, study):
        starts = contenders.starts_of(study)
        self.steady, self.trip = contenders.steady(starts) if starts else (None, 0)
        self.starts = len(starts)

        def take(transport, *algorithms, metric="t_p50_us", starts=None, world=""):
            return contenders.contender(study.csv, contenders.sweep_cell, lambda row: row("transport") == transport and (
                not algorithms or row("algorithm") in algorithms) and world in ("", row("world")), metric, starts)

        def times(*wanted, **more):
            return {**contenders.medians(take(*wanted, **more)), **contenders.medians(take(*wanted, **more, starts=self.steady))}

        self.mpi, self.shm, self.cores = take("mpi"), take("shm"), contenders.cores(study)
        self.quickest_bare = times("bare", "memcpy", metric="t_min_us")
        self.times = {
            "mpi": times("mpi"), "shm": times("shm"),
            "plain": {**contenders.medians(contenders.plain(study, "median_us")),
                      **contenders.medians(contenders.plain(study, "median_us", self.steady))},
            "bare": contenders.fastest(times("bare", "memcpy"), times("bare", "stream"))}
        self.shm_to_mpi = contenders.comparison(self.mpi, self.shm, study.launches)
        self.shm_to_bare = [contenders.comparison(take("bare", form, world="2"), take("shm", world="2"), study.launches)
                            for form in ("memcpy", "stream")]

    def of_bare(self, cell):
        """Share of the machine's limit that shm reaches, in pairs of the same launches: against the better form of the limit."""
        found = [results[cell].estimate.ratio for results in self.shm_to_bare if cell in results and results[cell].estimate]
        return 1 / max(found) if found else None


def ratio(above, below):
    return above / below if above and below else None


def line(found, collective, cache, count):
    """Cells of a line, and the goals that are missed."""
    cell = f"{collective} 2 {cache} {count}"
    plain, mpi, shm, bare = (found.times[name].get(cell) for name in ("plain", "mpi", "shm", "bare"))
    result = found.shm_to_mpi.get(cell)
    faster = 1 / result.estimate.ratio if result and result.estimate else ratio(mpi, shm)
    goal, missed = goal_of(cache, count), []
    if faster is None:
        missed.append("missing")
    elif (goal > 1 and faster < goal) or result.verdict == "regressed":
        missed.append(f"{goal:g}x")
    of_bare, of_plain = found.of_bare(cell), ratio(mpi, plain)
    if count >= OF_BARE_FROM and (of_bare is None or of_bare < OF_BARE):
        missed.append("bare")
    if of_plain is None and has_plain(cache, count):
        missed.append("missing")
    elif of_plain is not None and abs(of_plain - 1) > OF_PLAIN:
        missed.append("plain")
    shown = [number(value, 3) for value in (plain, mpi, shm, bare, of_plain, faster)]
    return [size(count), *shown, f"{goal:g}" if goal > 1 else "-", number(of_bare, 2),
            f"{OF_BARE}" if count >= OF_BARE_FROM else "-", result.verdict if result else "missing", " ".join(missed)], missed


HEADS = ("size", "plain us", "mpi us", "shm us", "bare us", "mpi/plain", "mpi/shm", "goal", "of bare", "goal", "shm is", "missed")


def two_ranks(found):
    """Prints a table for each collective and cache; returns all goals that were missed."""
    missed = []
    for collective, program in PROGRAMS.items():
        for cache in SPEED_UP:
            counts = sorted({int(cell.split()[3]) for cell in (*found.times["shm"], *found.times["mpi"])
                             if cell.startswith(f"{collective} 2 {cache} ")})
            lines = [line(found, collective, cache, count) for count in counts]
            missed += [goal for _, goals in lines for goal in goals] if lines else ["missing"]
            print(f"\n{collective} ({program}), 2 ranks, {cache} buffers", *text_table(HEADS, [cells for cells, _ in lines],
                                                                               left=("missed",)), sep="\n")
    return missed


def serialised(found, cell, ranks):
    """The bare work of all ranks on the cores there are, us; None where it was not measured. A row's time is the slowest rank's
    own: long ones hold the others' turns on the same core too, short ones end before the core is taken away."""
    own, quickest = found.times["bare"].get(cell), found.quickest_bare.get(cell)
    return own and max(own, (quickest or 0) * max(1.0, ranks / found.cores))


def many_ranks(found):
    """More ranks than cores: what must be copied anyway, twice, and 10 us a rank."""
    lines, missed = [], []
    for cell, shm in found.times["shm"].items():
        collective, ranks, _, count = cell.split()
        bare = serialised(found, cell, int(ranks))
        if ranks == "2" or bare is None:
            continue
        limit = 2 * bare + RANK_US * int(ranks)
        late = shm > limit
        missed += ["many"] * late
        lines.append((collective, ranks, size(int(count)), number(found.times["mpi"].get(cell), 3), number(shm, 3), number(bare, 3),
                      number(limit, 3), "missed" if late else ""))
    if lines:
        print("\nMore ranks: limit = 2 x bare work of all ranks + 10 us a rank", *text_table(
            ("collective", "ranks", "size", "mpi us", "shm us", "all bare us", "limit us", ""), lines, left=("collective", "")), sep="\n")
    return missed


def main(words):
    made = launching.parser(__doc__, launches=5)
    made.add_argument("--two-ranks", action="store_true", help="leave out 4 and 8 ranks")
    arguments = made.parse_args(words)
    study = launching.Study("show-speed", arguments)
    study.run(commands(arguments), contenders.PROBE)
    found = Contenders(study)
    missed = two_ranks(found) + many_ranks(found)
    if found.steady is not None and len(found.steady) < found.starts:
        print(f"\nThe machine changed: {len(found.steady)} of {found.starts} starts ran while a cache line took {found.trip:.0f} ns from core to "
              "core and back. Times are of these; mpi/shm and the share of bare are of all, in pairs.")
    print(f"\nRows: {study.csv}, {len(found.shm.launches)} launches with shm. Missed goals: {len(missed)}")
    return 3 if "missing" in missed else 1 if missed else 0


if __name__ == "__main__":
    launching.finish(main)
