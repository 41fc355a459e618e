"""Compares two sets of launches, cell by cell, and gives each cell one of four verdicts, or says what is missing.

The value of a launch for a cell is the median of its rows (repetitions) of that cell that no other load disturbed; where
all were disturbed, of all of them, and the launch counts as noisy. Nothing is left out as an outlier.

worse and better are meant of a ratio new/base that is turned round for columns where more is better:
- regressed, improved: the interval, Holm-corrected over all cells, excludes 1, and the estimate passes 1 + threshold
  (or 1 / (1 + threshold), so that swapping the sides swaps the verdicts);
- same: the interval of 1 - 2 alpha of this cell lies within these two bounds;
- inconclusive: neither; `detectable` is the slow-down that would probably have been found.
"""
import dataclasses
import fnmatch
import statistics
import typing

from .exact import RatioEstimate, holm, launches_needed
from .rows import UsageError

VERDICTS = ("regressed", "missing", "inconclusive", "same", "improved")  # worst first
LESS = ("_us", "_slowdown", "mem_peak_bytes")
MORE = ("_GBps", "_gflops", "_per_s", "_util", "_util_scale_up", "_util_scale_out", "hidden_share")
PROBLEM = {"wrong": "wrong results", "skipped": "skipped", "empty": "no valid samples"}


@dataclasses.dataclass(frozen=True)
class Rules:
    """What decides. `cells` are patterns of cell_id, those that begin with ! leave cells out."""

    threshold: float = 0.03
    alpha: float = 0.05
    paired: bool = False
    min_launches: int = 3
    more_is_better: bool = False
    cells: tuple = ()


@dataclasses.dataclass
class SideOfCell:
    """One side's launches of a cell: launch id -> value."""

    values: dict = dataclasses.field(default_factory=dict)
    noisy: int = 0
    problems: list = dataclasses.field(default_factory=list)

    @property
    def median(self):
        return statistics.median(self.values.values()) if self.values else None


@dataclasses.dataclass
class CellResult:
    """Ratios are new/base as measured. `interval` is the Holm-corrected one, `alone` that of this cell by itself,
    `deciding` the one that the verdict rests on."""

    cell_id: str
    base: SideOfCell
    new: SideOfCell
    verdict: str = "missing"
    reason: str = ""
    pairs: int = 0
    estimate: typing.Optional[RatioEstimate] = None
    interval: tuple = ()
    alone: tuple = ()
    deciding: tuple = ()
    level: float = 0.0  # alpha that the cell was judged at
    detectable: float = 0.0


def more_is_better(metric):
    """Which way a column is better; UsageError where its name does not tell."""
    if metric.endswith(MORE):
        return True
    if metric.endswith(LESS):
        return False
    raise UsageError(f"whether more or less of {metric} is better is not known; say so with --better more or --better less")


def side_of(readings):
    """SideOfCell of {launch id: Reading}."""
    side = SideOfCell()
    for launch_id, reading in readings.items():
        values = reading.values or reading.noisy
        side.problems += reading.problems
        if values:
            side.values[launch_id] = statistics.median(values)
            side.noisy += not reading.values
    return side


def why_missing(result, rules):
    """What keeps a cell from being compared; empty if nothing does."""
    for name, side in (("BASE", result.base), ("NEW", result.new)):
        wrong = [text for kind, text in side.problems if kind == "wrong"]
        if wrong:
            return f"wrong results in {name}: {wrong[0]}"
    for name, side in (("BASE", result.base), ("NEW", result.new)):
        if side.values and len(side.values) >= rules.min_launches:
            continue
        why = ", ".join(dict.fromkeys(f"{PROBLEM[kind]}: {text}" for kind, text in side.problems))
        count = f"{len(side.values)} of {rules.min_launches} launches in {name}" if side.values else f"not in {name}"
        return f"{count} ({why})" if why else count
    return ""


def ordinals(row_set):
    """{launch id: its number among its program's launches, by start}."""
    counts, result = {}, {}
    for launch in in_order(row_set):
        result[launch.id] = counts[launch.pattern] = counts.get(launch.pattern, 0) + 1
    return result


def in_order(row_set):
    """Launches by their start; by their place in the files where a start is not known."""
    launches = list(row_set.launches.values())
    if all(launch.started for launch in launches):
        launches.sort(key=lambda launch: launch.started)
    return launches


def estimate_of(result, rules, base_order, new_order):
    """The RatioEstimate of a cell; None where pairs are too few."""
    if not rules.paired:
        result.pairs = 0
        return RatioEstimate.of(list(result.base.values.values()), list(result.new.values.values()))
    base = {base_order[launch_id]: value for launch_id, value in result.base.values.items()}
    new = {new_order[launch_id]: value for launch_id, value in result.new.values.items()}
    both = sorted(base.keys() & new.keys())
    result.pairs = len(both)
    if len(both) < rules.min_launches:
        return None
    return RatioEstimate.of_pairs([base[i] for i in both], [new[i] for i in both])


def wanted(cell_id, patterns):
    """Whether the glob patterns select a cell."""
    include = [pattern for pattern in patterns if not pattern.startswith("!")]
    exclude = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return (not include or any(fnmatch.fnmatchcase(cell_id, p) for p in include)) and not any(
        fnmatch.fnmatchcase(cell_id, p) for p in exclude)


def compare(base, new, rules):
    """CellResult of every cell of two RowSets, worst first."""
    base_order, new_order = ordinals(base), ordinals(new)
    results, compared = [], []
    for cell_id in dict.fromkeys((*base.cells, *new.cells)):
        if not wanted(cell_id, rules.cells):
            continue
        result = CellResult(cell_id, side_of(base.cells.get(cell_id, {})), side_of(new.cells.get(cell_id, {})))
        results.append(result)
        result.reason = why_missing(result, rules)
        if result.reason:
            continue
        result.estimate = estimate_of(result, rules, base_order, new_order)
        if result.estimate is None:
            result.reason = f"{result.pairs} of {rules.min_launches} pairs of launches"
            continue
        compared.append(result)
    judge(compared, rules)
    return sorted(results, key=lambda result: badness(result, rules))


def judge(results, rules):
    """Sets verdict, intervals and what was detectable."""
    decisions = holm([result.estimate.p_value for result in results], rules.alpha)
    upper, lower = 1 + rules.threshold, 1 / (1 + rules.threshold)
    for result, (differs, level) in zip(results, decisions):
        estimate = result.estimate
        result.level, result.interval = level, estimate.interval(1 - level)
        result.alone = estimate.interval(1 - rules.alpha)
        narrow = low, high = estimate.interval(1 - 2 * rules.alpha)
        ratio = estimate.ratio
        result.deciding = result.interval
        result.detectable = estimate.detectable(1 - level, rules.threshold)
        if differs and (ratio >= upper or ratio <= lower):
            result.verdict = "regressed" if (ratio >= upper) != rules.more_is_better else "improved"
        elif lower < low and high < upper:
            result.verdict, result.deciding = "same", narrow
        else:
            result.verdict = "inconclusive"
            result.reason = why_inconclusive(result, rules)


def why_inconclusive(result, rules):
    """How many launches it would take, where these can never tell."""
    if result.interval[0] > 0:
        return ""
    needed = launches_needed(result.level, rules.paired)
    return f"too few launches: {round(rules.alpha / result.level)} cells need {needed} a side"


def badness(result, rules):
    """Sort key: verdict, then how much worse."""
    worse = result.estimate.ratio if result.estimate else 0
    if result.estimate and rules.more_is_better:
        worse = 1 / worse
    return VERDICTS.index(result.verdict), -worse, result.cell_id


def exit_code(results):
    """1 regressed, 3 inconclusive or missing, 0 all same or improved."""
    verdicts = {result.verdict for result in results}
    if "regressed" in verdicts:
        return 1
    return 3 if not results or verdicts & {"missing", "inconclusive"} else 0
