#!/usr/bin/env python3
"""How much a figure varies from launch to launch: weft's median against the usual mean of a loop, of the same MPI call.

AllReduce of 64 KiB on two ranks, hot buffers, launches of both in turn. weft: the median of samples from a common start to the
end of the slowest rank (transport mpi). plain-mpi: the mean over a loop of the same call, back to back, in as much time. The
variation is the interquartile range of the launches over their median; the ratio of the two has an upper bound from a bootstrap
over launches (one-sided 95%).

A virtual machine can be in several states: its host moves its processors, and a cache line takes three times as long from one
to the other. core-distance measures that between launches, on its own. Only launches between two probes of the machine's most
frequent state count, of both contenders alike; what all of them together show is printed as well.

Exit code: 0 the upper bound is at most the goal, 1 weft varies more by the estimate too, 2 usage, 3 launches are too few to tell.
"""
import random
import statistics

from weft_analysis import contenders, launching, rows
from weft_analysis.tables import number, text_table

CELL = "all_reduce 2 hot 65536"
SECONDS = 0.2  # plain-mpi's loop lasts as long
PROBE = launching.Command("core-distance", 1, "", output="probe.csv")
ALIKE = 1.25  # round trips of one state; states differ by a factor of 2 and more
RESAMPLES = 10_000
FEWEST = 4


def commands():
    plain = contenders.plain_command("all_reduce", 2, [65536], f"--hot --time {SECONDS}")
    return [launching.Command("weft-row-allreduce", 2, f"--sizes 65536 --transport mpi --phase comm --hot --precision 0.1% "
                              f"--min-time {SECONDS} --max-time {SECONDS}"), plain]


def values(row_set, wanted=None):
    """A value for each launch, in their order; `wanted`: numbers of launches, from 1."""
    found = list(row_set.cells.get(CELL, {}).values())
    return [statistics.median(reading.values or reading.noisy) for number_of, reading in enumerate(found, 1)
            if (reading.values or reading.noisy) and (wanted is None or number_of in wanted)]


def probes(study):
    """Round trips of a cache line in front of each launch and after the last, ns; empty where nobody measured them."""
    path = study.folder / PROBE.output
    if not path.exists():
        return []
    return [float(row("round_trip_ns")) for _, row in rows.table_lines(path, ("launch", "round_trip_ns"), [])]


def steady(found):
    """Launches that began and ended in the state that most of them did, and a round trip of that state."""
    def within(trip):
        return {launch for launch, ends in enumerate(zip(found, found[1:]), 1) if all(1 / ALIKE < one / trip < ALIKE for one in ends)}

    trip = max(sorted(found), key=lambda one: len(within(one)))
    return within(trip), trip


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


def table(study, wanted, title):
    """Prints the figures of these launches; (ratio of variations, its upper bound), or None where they are too few."""
    ours = values(contenders.contender(study.csv, contenders.sweep_cell, lambda row: row("transport") == "mpi"), wanted)
    loop, sampled = (values(contenders.plain(study, column), wanted) for column in ("back_to_back_us", "median_us"))
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
    study.run(commands(), PROBE)
    trips = probes(study)
    wanted, trip = steady(trips) if len(trips) > 1 else (None, None)
    bound = table(study, None, "all launches")
    if wanted is not None and len(wanted) < len(trips) - 1:
        print(f"\nA cache line from core to core and back: {min(trips):.0f} to {max(trips):.0f} ns. {len(wanted)} of {len(trips) - 1} launches "
              f"began and ended near {trip:.0f} ns:")
        bound = table(study, wanted, "launches in that state")
    print(f"\nRows: {study.folder}")
    if bound is None:
        return 3
    ratio, most = bound
    print(f"Variation of weft / of the loop: {ratio:.2f}, at most {most:.2f} (95%); goal {arguments.goal:g}")
    return 0 if most <= arguments.goal else 1 if ratio > arguments.goal else 3


if __name__ == "__main__":
    launching.finish(main)
