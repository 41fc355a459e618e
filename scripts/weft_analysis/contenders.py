"""Rows of one study, taken apart by what moved the bytes: shm against mpi, mpi against a plain loop, all against the machine.

A contender is a RowSet whose cells are named alike in all contenders, so that weft-compare's functions compare them. Rows
of one launch share its conditions: contenders of the same launches are compared in pairs.
"""
import os
import statistics

from . import launching, rows, verdicts


def contender(csv_path, cell, wanted, metric="t_p50_us"):
    """RowSet of the rows that `wanted(row)` takes, each named `cell(row)`."""
    found = rows.RowSet(metric)
    found.read(csv_path, cell=lambda row: cell(row) if wanted(row) else "")
    return found


PLAIN = "plain.csv"  # tables of plain-mpi, which knows nothing of weft
PLAIN_OPERATION = {"all_gather": "allgather", "all_reduce": "allreduce", "all_to_all_v": "alltoallv"}


def pieces(collective, ranks):
    """A size here is a rank's contribution, of an all-to-all what goes to one peer: so many make the size of weft's sweeps."""
    return ranks if collective == "all_to_all_v" else 1


def plain_command(collective, ranks, sizes, options):
    words = f"--op {PLAIN_OPERATION[collective]} --sizes {','.join(map(str, sizes))} {options}"
    return launching.Command("plain-mpi", ranks, words, output=PLAIN)


def plain(study, column):
    """RowSet of a column of plain-mpi's tables, cells as those of sweep_cell(); empty where it was not started."""
    found, collectives = rows.RowSet(column), {name: key for key, name in PLAIN_OPERATION.items()}
    path = study.folder / PLAIN
    if not path.exists():
        return found
    for _, row in rows.table_lines(path, ("launch", "op", "ranks", "size", "rotate", column), found.damaged):
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


def fastest(sets):
    """{cell: smallest median of several contenders}."""
    result = {}
    for one in map(medians, sets):
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
