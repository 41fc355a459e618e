#!/usr/bin/env python3
"""How much communication hides behind compute: gradients of gpt2-small, data parallel on two ranks.

Phases compute, comm, serial and overlap of weft-dp-gradsync, and what it derives from them (results/SCHEMA.md): exposed
communication, the share of it that is hidden, idle time of the schedule, and how much slower compute is while bytes move.
All are medians over launches of what the launches report.

Exit code: 0 shown, 2 usage, 3 a phase or a derived column is missing.
"""
import statistics

from weft_analysis import contenders, launching
from weft_analysis.tables import number, text_table

PHASES = ("compute", "comm", "serial", "overlap")
DERIVED = ("exposed_us", "hidden_share", "bubble_us", "compute_slowdown")


def derived(study, metric, transport):
    """Median over launches of a derived column of the overlap rows; None where no launch has it. Zero and less are values."""
    found = {}

    def keep(row):
        text = row(metric)
        if row("phase") == "overlap" and row("transport") == transport and row("verified") != "false" and text:
            found[row("launch_id")] = float(text)
        return ""

    contenders.contender(study.csv, keep, lambda row: True)
    return statistics.median(found.values()) if found else None


def line(study, transport):
    """Cells of a transport's line; None stands for what is missing."""
    times = contenders.medians(contenders.contender(study.csv, lambda row: row("phase"), lambda row: row("transport") == transport))
    values = [times.get(phase) for phase in PHASES] + [derived(study, metric, transport) for metric in DERIVED]
    saved = 1 - times["overlap"] / times["serial"] if {"overlap", "serial"} <= times.keys() else None
    return values, [transport, *(number(value) for value in values[:4]), f"{saved:.1%}" if saved is not None else "",
                    *(number(value, 3) for value in values[4:])]


def main(words):
    made = launching.parser(__doc__, launches=5)
    made.add_argument("--layers", type=launching.positive, default=4, metavar="N", help="of gpt2-small (default 4)")
    made.add_argument("--seq", type=launching.positive, default=256, metavar="N", help="tokens (default 256)")
    arguments = made.parse_args(words)
    study = launching.Study("show-overlap", arguments)
    shape = "--layers 1 --seq 64" if arguments.quick else f"--layers {arguments.layers} --seq {arguments.seq}"
    longest = "--min-time 0 --max-time 0.2" if arguments.quick else "--max-time 2"
    study.run([launching.Command("weft-dp-gradsync", 2, f"--model gpt2-small {shape} --bucket-mib 5 --transport {transport} {longest}")
               for transport in ("mpi", "shm")])
    found = [line(study, transport) for transport in ("mpi", "shm")]
    heads = ("transport", *(f"{phase} us" for phase in PHASES), "saved", "exposed us", "hidden share", "bubble us", "compute slowdown")
    print(f"\nGradients of gpt2-small ({shape}), 2 ranks; medians over launches", *text_table(heads, [cells for _, cells in found],
          left=("transport",)), "saved: of the serial time, by overlapping", f"Rows: {study.csv}", sep="\n")
    return 3 if any(value is None for values, _ in found for value in values) else 0


if __name__ == "__main__":
    launching.finish(main)
