#!/usr/bin/env python3
"""How much a figure varies from launch to launch: weft's median against the usual mean of a loop, of the same MPI call.

AllReduce of 64 KiB on two ranks, hot buffers, launches of both in turn. weft: the median of samples from a common start to the
end of the slowest rank (transport mpi). plain-mpi: the mean over a loop of the same call, back to back, in as much time. The
variation is the interquartile range of the launches over their median; the ratio of the two has an upper bound from a bootstrap
over launches (one-sided 95%).

A virtual machine can be in several states: its host moves its processors, and a cache line takes three times as long from one
to the other. core-distance measures that between all starts, on its own. Only starts between two probes of the machine's most frequent
state count, of both contenders alike; what all of them together show is printed as well.

Exit code: 0 the upper bound is at most the goal, 1 weft varies more by the estimate too, 2 usage, 3 launches are too few to tell.
"""
import random
import statistics

from weft_analysis import contenders, launching
from weft_analysis.tables import number, text_table

CELL = "all_reduce 2 hot 65536"
SECONDS = 0.2  # plain-mpi's loop lasts as long
RESAMPLES = 10_000
FEWEST = 4


def commands():
    plain = contenders.plain_command("all_reduce", 2, [65536], f"--hot --time {SECONDS}")
    return [launching.Command("weft-row-allreduce", 2, f"--sizes 65536 --transport mpi --phase comm --hot --precision 0.1% "
                              f"--min-time {SECONDS} --max-time {SECONDS}"), plain]


def values(row_set):
    """A value for each launch."""
    return [statistics.median(reading.values or reading.noisy) for reading in row_set.cells.get(CELL, {}).values()
            if reading.values or reading.noisy]


def upper_bound(ours, theirs, rng):
    """95% of resamples have a smaller ratio of variations."""
    ratios = []
    for _ in range(RESAMPLES):
        one = contenders.spread(rng.choices(ours, k=len(ours)))
        other = contenders.spread(rng.choices(theirs, k=len(theirs)))
        ratios.append(one / other if other else float("inf"))
    return sorted(ratios)[int(0.95 * RESAMPLES)]


def line(name, found):
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return name, len(found), number(middle), number(low), number(high), number(min(found)), number(max(found)), f"{(high - low) / middle:.2%}"


def table(study, starts, title):
    """Prints the figures of these starts; (ratio of variations, its upper bound), or None where they are too few."""
    ours = values(contenders.contender(study.csv, contenders.sweep_cell, lambda row: row("transport") == "mpi", starts=starts))
    loop, sampled = (values(contenders.plain(study, column, starts)) for column in ("back_to_back_us", "median_us"))
    if min(len(ours), len(loop)) < FEWEST:
        print(f"{title}: {len(ours)} launches of weft and {len(loop)} of plain-mpi: at least {FEWEST} of each are needed")
        return None
    figures = (("weft t_p50_us", ours), ("plain-mpi mean, back to back", loop), ("plain-mpi median of samples", sampled))
    print(f"\nAllReduce of 64 KiB, MPI, 2 ranks, hot buffers, {title}; us", *text_table(
        ("figure", "launches", "median", "25%", "75%", "least", "largest", "variation"),
        [line(name, found) for name, found in figures if len(found) >= FEWEST], left=("figure",)), sep="\n")
    return contenders.spread(ours) / contenders.spread(loop), upper_bound(ours, loop, random.Random(1))


def main(words):
    made = launching.parser(__doc__, launches=30)
    made.add_argument("--goal", type=float, default=1.0, metavar="X", help="largest ratio that is fine (default 1)")
    arguments = made.parse_args(words)
    if arguments.quick:
        arguments.launches = min(arguments.launches, 6)
    study = launching.Study("show-repeatability", arguments)
    study.run(commands(), contenders.PROBE)
    bound = table(study, None, "all launches")
    starts = contenders.starts_of(study)
    wanted, trip = contenders.steady(starts) if starts else ([], 0)
    if len(wanted) < len(starts):
        trips = [one for start in starts for one in (start.before, start.after)]
        print(f"\nA cache line from core to core and back: {min(trips):.0f} to {max(trips):.0f} ns. {len(wanted)} of {len(starts)} starts "
              f"began and ended near {trip:.0f} ns:")
        bound = table(study, wanted, "in that state")
    print(f"\nRows: {study.folder}")
    if bound is None:
        return 3
    ratio, most = bound
    print(f"Variation of weft / of the loop: {ratio:.2f}, at most {most:.2f} (95%); goal {arguments.goal:g}")
    return 0 if most <= arguments.goal else 1 if ratio > arguments.goal else 3


if __name__ == "__main__":
    launching.finish(main)
