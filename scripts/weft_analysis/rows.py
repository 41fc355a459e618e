"""Reads the rows of weft's programs (results/SCHEMA.md): one value for each launch and cell.

Columns are found by name, so files of several schemas can be read together. Damaged lines, which a killed run leaves, are
named and left out; what cannot be understood is a UsageError that names file, line and column.
"""
import csv
import dataclasses
import json
import math
import pathlib

csv.field_size_limit(1 << 26)
NEEDED = ("schema", "launch_id", "cell_id")
PLACE = ("host_names", "world", "hosts", "virtual_hosts", "cores_per_rank", "threads_per_rank", "binding", "sync")


class UsageError(Exception):
    """Cause and remedy in one line; exit code 2."""


@dataclasses.dataclass
class Launch:
    """One mpiexec of one program; `ordinal` counts those of its program in the file, from 1."""

    id: str
    pattern: str
    ordinal: int
    started: tuple | None  # (UTC time, line of the provenance file); None if unknown


@dataclasses.dataclass
class Reading:
    """All rows of one launch and cell. `values` are of quiet rows, `noisy` of those flagged; `problems` of rows without."""

    values: list = dataclasses.field(default_factory=list)
    noisy: list = dataclasses.field(default_factory=list)
    problems: list = dataclasses.field(default_factory=list)  # (kind, text)


class RowSet:
    """What was read: launches by id, readings by (cell, launch), and remarks for the user.

        rows = RowSet("t_p50_us")
        rows.read(path, chosen=lambda launch_id, pattern: True)
    """

    def __init__(self, metric):
        self.metric = metric
        self.launches, self.cells = {}, {}
        self.schemas, self.damaged, self.places = set(), [], {}

    def read(self, path, chosen=lambda launch: True, cell=lambda row: row("cell_id")):
        """Adds the rows of one file. `chosen(launch)` may leave launches out; `cell(row)` names the cell by which rows are
        matched, '' leaves a row out."""
        times, seen = start_times(path), {}
        for line, row in table_lines(path, (*NEEDED, self.metric), self.damaged):
            launch_id = row("launch_id")
            if not launch_id or not row("cell_id"):
                self.damaged.append(f"{path}:{line}: no launch_id or no cell_id")
                continue
            if launch_id not in seen:
                seen[launch_id] = make_launch(launch_id, row("pattern"), seen, times)
            cell_id = cell(row)
            if cell_id and chosen(seen[launch_id]):
                self.launches.setdefault(launch_id, seen[launch_id])
                self._add(f"{path}:{line}", launch_id, cell_id, row)

    def _add(self, where, launch_id, cell_id, row):
        reading = self.cells.setdefault(cell_id, {}).setdefault(launch_id, Reading())
        value, problem = read_value(where, row, self.metric)
        if problem:
            reading.problems.append(problem)
        else:
            (reading.noisy if is_noisy(row("noise")) else reading.values).append(value)
        self.schemas.add(row("schema"))
        for column in PLACE:
            if row(column):
                self.places.setdefault((cell_id, column), set()).add(row(column))


def is_noisy(noise):
    """The column `noise` says what other load there was."""
    return noise not in ("", "quiet", "unknown")


def read_value(where, row, metric):
    """(value, None), or (None, (kind, text)) of a row that has no value that counts."""
    reason = row("skip_reason")
    if row("verified") == "false":
        return None, ("wrong", reason or "verified=false")
    if reason:
        return None, ("skipped", reason)
    text = row(metric)
    try:
        value = float(text) if text else math.nan
    except ValueError:
        raise UsageError(f"{where}: column {metric} has '{text}', which is no number with a decimal point; "
                         "take the file as the program wrote it") from None
    if math.isfinite(value) and value > 0:
        return value, None
    return None, ("empty", f"{metric} is {text or 'blank'}")


def make_launch(launch_id, pattern, seen, times):
    ordinal = 1 + sum(launch.pattern == pattern for launch in seen.values())
    return Launch(launch_id, pattern, ordinal, times.get(launch_id))


def provenance(path):
    """Entries of the provenance beside a CSV, as (line, dict); none if there is no such file."""
    try:
        with open(f"{path}.provenance.jsonl", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the torn line of a killed run
                if isinstance(entry, dict):
                    yield number, entry
    except OSError:
        pass


def start_times(path):
    """{launch_id: (time, line)} of the launches that the provenance knows."""
    return {entry["launch_id"]: (str(entry["time_utc"]), number) for number, entry in provenance(path)
            if isinstance(entry.get("launch_id"), str) and "time_utc" in entry}


def open_text(path):
    try:
        return open(path, encoding="utf-8-sig", errors="surrogateescape", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a CSV that weft's programs wrote") from None


def fields_of(line):
    """The fields of one line; rows have no newlines inside, so a torn quote cannot swallow the line after it."""
    try:
        return next(csv.reader([line.rstrip("\r\n")]), [])
    except csv.Error:
        return []


def table_lines(path, needed, damaged):
    """Yields (line number, row) where row(column) is the text, '' for a column the file has not."""
    header, places = None, {}
    with open_text(path) as file:
        try:
            for number, line in enumerate(file, 1):
                fields = fields_of(line)
                if header is None or fields[:1] == header[:1]:  # also where files were joined
                    header, places = fields, check_header(path, number, fields, needed)
                elif len(fields) == len(header):
                    yield number, lambda name, f=fields, p=places: f[p[name]].strip() if name in p else ""
                elif line.strip():
                    damaged.append(f"{path}:{number}: {len(fields)} of {len(header)} fields")
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if header is None:
        raise UsageError(f"{path} is empty; name a CSV that weft's programs wrote")


def check_header(path, number, fields, needed):
    """{column: place}; refuses what is no header of rows."""
    places = {name.strip(): place for place, name in enumerate(fields)}
    missing = [name for name in needed if name not in places]
    if not missing:
        return places
    if len(fields) < 3:
        raise UsageError(f"{path}:{number}: no header of rows separated by commas "
                         f"(it begins '{','.join(fields)[:40]}'); name a CSV that weft's programs wrote")
    raise UsageError(f"{path}:{number}: no column {' and no '.join(missing)} in the header; "
                     "name a CSV that weft's programs wrote with --csv")


def is_row_file(path):
    """Whether a CSV in a folder has rows (and not flows, samples, or something else)."""
    try:
        with open_text(path) as file:
            return set(NEEDED) <= set(fields_of(file.readline()))
    except UsageError:
        return False


def files_of(path):
    """The CSVs that a file or folder stands for."""
    path = pathlib.Path(path)
    if not path.is_dir():
        return [path]
    found = [file for file in sorted(path.rglob("*.csv")) if is_row_file(file)]
    if not found:
        raise UsageError(f"{path} has no CSV with rows of weft; name the folder of a run, or a file written with --csv")
    return found
