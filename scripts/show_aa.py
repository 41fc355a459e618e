#!/usr/bin/env python3
"""How often weft-compare is wrong where nothing changed: launches of the same program, in turn, compared with each other.

Each comparison has its own launches: N for BASE and N for NEW, A B A B. A false alarm is a comparison that calls any cell
regressed; no more than alpha of them should be.

Exit code: 0 no more false alarms than alpha allows, 1 more, 2 usage.
"""
from weft_analysis import launching, rows, verdicts
from weft_analysis.tables import number, text_table

PAIRS = 20


def read(study, first, count, rest):
    """RowSet of every second of `count` launches from the `first` on."""
    found = rows.RowSet("t_p50_us")
    found.read(study.csv, lambda launch: first <= launch.ordinal < first + count and launch.ordinal % 2 == rest)
    return found


def main(words):
    made = launching.parser(__doc__, launches=9)
    made.add_argument("--comparisons", type=launching.positive, default=PAIRS, metavar="N", help=f"default {PAIRS}")
    made.add_argument("--paired", action="store_true", help="compare in pairs")
    arguments = made.parse_args(words)
    a_side, count = arguments.launches, 2 * arguments.launches
    arguments.launches = count * arguments.comparisons
    study = launching.Study("show-aa", arguments)
    longest = 0.02 if arguments.quick else 0.05
    study.run([launching.Command("weft-row-allreduce", 2, f"--sizes 8,64K --transport mpi,shm --phase comm --no-verify "
                                 f"--min-time 0 --max-time {longest}")])
    lines, alarms, rules = [], 0, verdicts.Rules(paired=arguments.paired)
    for comparison in range(arguments.comparisons):
        base, new = (read(study, 1 + comparison * count, count, rest) for rest in (1, 0))
        results = verdicts.compare(base, new, rules)
        counts = [sum(result.verdict == verdict for result in results) for verdict in verdicts.VERDICTS]
        alarms += counts[0] > 0
        ratios = [result.estimate.ratio for result in results if result.estimate]
        lines.append((comparison + 1, *counts, number(min(ratios, default=None)), number(max(ratios, default=None))))
    print(f"\n{arguments.comparisons} comparisons of {a_side} launches with {a_side} of the same program, in turn",
          *text_table(("comparison", *verdicts.VERDICTS, "least ratio", "largest"), lines), sep="\n")
    print(f"False alarms: {alarms} of {arguments.comparisons} ({alarms / arguments.comparisons:.1%}); alpha is {rules.alpha:.0%}. "
          f"Rows: {study.csv}")
    return int(alarms > rules.alpha * arguments.comparisons)


if __name__ == "__main__":
    launching.finish(main)
