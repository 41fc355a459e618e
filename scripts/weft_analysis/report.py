"""What weft-compare prints and writes: the table of verdicts, remarks about the data, the machine-readable CSV."""
import collections
import csv
import math
import statistics

from .rows import UsageError
from .tables import number, text_table
from .verdicts import VERDICTS, in_order

COLUMNS = ("verdict", "reason", "cell_id", "metric", "better", "paired", "base_launches", "new_launches", "base_noisy",
           "new_noisy", "base_median", "new_median", "ratio", "low", "high", "alpha", "p_value", "low_alone", "high_alone",
           "detectable")
SHOWN = 5  # damaged lines, and differing cells, that are named


def percent(ratio, digits=1):
    """'+5.0%' of 1.05; '-' where there is no such ratio."""
    return "-" if not ratio or math.isinf(ratio) else f"{(ratio - 1) * 100:+.{digits}f}%"


def span(interval):
    low, high = interval
    return f"{percent(low)} .. {percent(high)}" if low else "-"


def table(results, rules):
    """Lines, worst cell first."""
    rows = []
    for result in results:
        compared = result.estimate is not None and result.verdict != "missing"
        counts = f"{result.pairs} pairs" if rules.paired and compared else f"{len(result.base.values)}/{len(result.new.values)}"
        rows.append((result.verdict, number(result.base.median), number(result.new.median),
                     percent(result.estimate.ratio) if compared else "", span(result.deciding) if compared else "",
                     percent(result.detectable) if compared else "", counts,
                     result.cell_id + (f"  ({result.reason})" if result.reason else "")))
    return text_table(("verdict", "base", "new", "change", "interval", "detectable", "launches", "cell"), rows,
                      left=("verdict", "cell"))


def counts_line(results):
    counts = collections.Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def remarks(base, new, results, rules):
    """Lines about what a reader should know of the data before believing the table."""
    for name, rows in (("BASE", base), ("NEW", new)):
        for line in rows.damaged[:SHOWN]:
            yield f"left out: {line} (what a killed run left of a row?)"
        if len(rows.damaged) > SHOWN:
            yield f"left out: {len(rows.damaged) - SHOWN} more damaged lines in {name}"
    if base.schemas != new.schemas:
        yield f"schemas differ: BASE {' '.join(sorted(base.schemas))}, NEW {' '.join(sorted(new.schemas))}; columns are read by name"
    yield from differing_places(base, new)
    noisy = [sum(side.noisy for side in sides) for sides in ([r.base for r in results], [r.new for r in results])]
    if any(noisy):
        yield f"other load disturbed {noisy[0]} values of BASE and {noisy[1]} of NEW (column noise); they are kept"
    if not rules.paired and apart(base, new):
        yield ("BASE and NEW were not run in turn: what changed on the machine between them counts as a difference; "
               "run launches A B A B")


def differing_places(base, new):
    """Where the same cell was run under other conditions."""
    found = collections.defaultdict(list)
    for (cell_id, column), values in base.places.items():
        other = new.places.get((cell_id, column), values)
        if other != values:
            found[column, " ".join(sorted(values)), " ".join(sorted(other))].append(cell_id)
    for (column, one, other), cells in list(found.items())[:SHOWN]:
        yield f"{column} differs: BASE {one}, NEW {other} ({len(cells)} cells)"


def apart(base, new):
    """Whether all launches of one side of a program started before all of the other (3 or more each)."""
    starts = [collections.defaultdict(list), collections.defaultdict(list)]
    for side, rows in zip(starts, (base, new)):
        for launch in in_order(rows):
            if launch.started:
                side[launch.pattern].append(launch.started[0])
    for pattern in starts[0].keys() & starts[1].keys():
        one, other = starts[0][pattern], starts[1][pattern]
        if min(len(one), len(other)) >= 3 and (max(one) < min(other) or max(other) < min(one)):
            return True
    return False


def csv_row(result, metric, rules):
    """One cell; blank is unknown."""
    estimate = result.estimate
    row = dict.fromkeys(COLUMNS, "")
    row.update(verdict=result.verdict, reason=result.reason, cell_id=result.cell_id, metric=metric,
               better="more" if rules.more_is_better else "less", paired=str(rules.paired).lower(),
               base_launches=len(result.base.values), new_launches=len(result.new.values),
               base_noisy=result.base.noisy, new_noisy=result.new.noisy,
               base_median=result.base.median, new_median=result.new.median)
    if estimate:
        row.update(ratio=estimate.ratio, alpha=result.level, p_value=estimate.p_value, detectable=result.detectable)
        row.update(zip(("low", "high", "low_alone", "high_alone"), (*result.interval, *result.alone)))
    return {name: plain(value) for name, value in row.items()}


def plain(value):
    """A number with six significant digits; an interval without an end is blank there."""
    if isinstance(value, float):
        return f"{value:.6g}" if 0 < value < math.inf else ""
    return "" if value is None else value


def write_csv(path, results, metric, rules):
    try:
        with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(csv_row(result, metric, rules) for result in results)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name a file you may write to with --csv") from None


def launches_table(rows):
    """Lines of --list."""
    counts = collections.Counter(launch_id for readings in rows.cells.values() for launch_id in readings)
    lines = [(launch.pattern, launch.ordinal, launch.id, launch.started[0] if launch.started else "", counts[launch.id])
             for launch in in_order(rows)]
    return text_table(("program", "number", "launch_id", "started (UTC)", "cells"), lines, left=("program", "launch_id"))


def spread_line(base, new, results):
    """How much launches of one side differ from each other: the typical cell."""
    spreads = []
    for result in results:
        for side in (result.base, result.new):
            if len(side.values) >= 3:
                spreads.append(statistics.stdev(side.values.values()) / statistics.mean(side.values.values()))
    if not spreads:
        return ""
    return f"Launches of one side vary by {statistics.median(spreads):.1%} (standard deviation, median over cells)."
