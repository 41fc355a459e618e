"""Rows of one study, taken apart by what moved the bytes: shm against mpi, mpi against a plain loop, all against the machine.

A contender is a RowSet whose cells are named alike in all contenders, so that weft-compare's functions compare them. Rows
of one launch share its conditions: contenders of the same launches are compared in pairs.
"""
import dataclasses
import os
import statistics

from . import launching, rows, verdicts


def contender(csv_path, cell, wanted, metric="t_p50_us", starts=None):
    """RowSet of the rows that `wanted(row)` takes, each named `cell(row)`; with `starts`, only of these."""
    found = rows.RowSet(metric)
    launches = None if starts is None else {start.launch_id for start in starts}
    found.read(csv_path, cell=lambda row: cell(row) if wanted(row) and (launches is None or row("launch_id") in launches) else "")
    return found


# A virtual machine can be in several states: its host moves its processors, and a cache line takes three times as long from
# one to the other. This tells which one, on its own.
PROBE = launching.Command("core-distance", 1, "", output="none")
ALIKE = 1.25  # round trips of one state; states differ by a factor of 2 and more


@dataclasses.dataclass(frozen=True)
class Start:
    """One start of a command, and the round trip of a cache line, ns, before and after it."""

    launch: str
    command: str
    launch_id: str   # of weft's programs
    before: float
    after: float


def starts_of(study):
    """All starts of a study that were probed."""
    path = study.folder / "states.csv"
    if not path.exists():
        return []
    return [Start(*(row(name) for name in ("launch", "command", "launch_id")), float(row("before")), float(row("after")))
            for _, row in rows.table_lines(path, ("launch", "command", "launch_id", "before", "after"), []) if row("before")]


def steady(starts):
    """(starts that began and ended in the state that most of them did, a round trip of that state)"""
    def within(trip):
        return [start for start in starts if all(1 / ALIKE < one / trip < ALIKE for one in (start.before, start.after))]

    trip = max(sorted(start.before for start in starts), key=lambda one: len(within(one)))
    return within(trip), trip


PLAIN = "plain.csv"  # tables of plain-mpi, which knows nothing of weft
PLAIN_OPERATION = {"all_gather": "allgather", "all_reduce": "allreduce", "all_to_all_v": "alltoallv"}


def pieces(collective, ranks):
    """A size here is a rank's contribution, of an all-to-all what goes to one peer: so many make the size of weft's sweeps."""
    return ranks if collective == "all_to_all_v" else 1


def plain_command(collective, ranks, sizes, options):
    words = f"--op {PLAIN_OPERATION[collective]} --sizes {','.join(map(str, sizes))} {options}"
    return launching.Command("plain-mpi", ranks, words, output=PLAIN)


def plain(study, column, starts=None):
    """RowSet of a column of plain-mpi's tables, cells as those of sweep_cell(); empty where it was not started. With `starts`,
    only of these."""
    found, collectives = rows.RowSet(column), {name: key for key, name in PLAIN_OPERATION.items()}
    path = study.folder / PLAIN
    if not path.exists():
        return found
    wanted = None if starts is None else {(start.launch, start.command) for start in starts}
    for _, row in rows.table_lines(path, ("launch", "command", "op", "ranks", "size", "rotate", column), found.damaged):
        if wanted is not None and (row("launch"), row("command")) not in wanted:
            continue
        ranks, collective = int(row("ranks")), collectives[row("op")]
        cell = f"{collective} {ranks} {'hot' if row('rotate') == '0' else 'rotated'} {row('size')}"
        reading = found.cells.setdefault(cell, {}).setdefault(row("launch"), rows.Reading())
        if row(column):
            reading.values.append(float(row(column)))
        found.launches.setdefault(row("launch"), rows.Launch(row("launch"), "plain-mpi", int(row("launch")), None))
    return found


def sweep_cell(row):
    """(collective, ranks, cache, bytes) as text, of a row of a sweep: 'all_gather 2 hot 4096'."""
    collective = row("cell_id").split("/")[2].partition(".")[0]
    if not row("size"):
        return ""
    return f"{collective} {row('world')} {row('cache')} {int(row('size')) // pieces(collective, int(row('world')))}"


def cores(study):
    """Usable processors of the machine that a study ran on."""
    told = (entry.get("cores") for _, entry in rows.provenance(study.csv))
    return next((count for count in told if isinstance(count, int) and count > 0), len(os.sched_getaffinity(0)))


def medians(row_set):
    """{cell: median over launches}, of cells that were right in all launches."""
    result = {}
    for cell, readings in row_set.cells.items():
        side = verdicts.side_of(readings)
        if side.values and not any(kind == "wrong" for kind, _ in side.problems):
            result[cell] = side.median
    return result


def fastest(*times):
    """{cell: smallest of several contenders' times}."""
    result = {}
    for one in times:
        for cell, value in one.items():
            result[cell] = min(value, result.get(cell, value))
    return result


def comparison(base, new, launches):
    """{cell: CellResult}: `new` against `base`, in pairs of the same launch where they come from the same launches."""
    paired = base.launches.keys() == new.launches.keys()
    rules = verdicts.Rules(paired=paired, min_launches=min(3, launches))
    return {result.cell_id: result for result in verdicts.compare(base, new, rules)}


def spread(values):
    """Interquartile range over median, of 4 or more numbers."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle
