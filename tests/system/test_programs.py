# label: mpi
"""Every pattern at 1, 2, 3, 4 and 8 ranks, over every transport, algorithm and data type: verified."""
import pytest

from harness import DIMENSION, assert_all_verified, mpiexec, read_json, read_rows, status_of

DTYPES = ("f32", "bf16", "f16")
SHORT = ("--min-time", "0", "--max-time", "0.02", "--phase", "comm,overlap", "--dtype", ",".join(DTYPES))
ALGORITHMS = ("ring", "direct", "recursive", "hierarchical")
# tiny's widths halve three times but give no thirds; these do.
THIRDS = {"tp-allgather": ("--model", "gpt2-small", "--seq", "16"), "row-allreduce": ("--model", "gpt2-small", "--seq", "16"),
          "moe-alltoall": ("--model", "tiny", "--experts", "6")}
MORE = {"pp-sendrecv": lambda ranks: ("--layers", 2 * ranks, "--micro-batches", 3)}
RANKS = (1, 2, 3, 4, 8)


def options(pattern, ranks):
    model = THIRDS.get(pattern, ("--model", "tiny")) if ranks == 3 else ("--model", "tiny")
    return (*SHORT, *model, *MORE.get(pattern, lambda ranks: ())(ranks))


def check(folder, pattern, ranks, transport, *more):
    """Runs it; returns the measured rows, all verified."""
    csv = folder / "rows.csv"
    result = mpiexec(ranks, pattern, *options(pattern, ranks), "--transport", transport, *more, "--csv", csv, timeout=240)
    assert result.code == 0, result
    assert status_of(csv)["state"] == "complete"
    rows = assert_all_verified(read_rows(csv))
    assert {row["dtype"] for row in rows} == set(DTYPES)
    assert {int(row["world"]) for row in rows} == {ranks}
    assert {row[DIMENSION[pattern]] for row in rows} == {str(ranks)}
    return rows


def check_pattern(folder, pattern, ranks):
    """mpi by its own collectives, shm by every schedule that suits."""
    assert {row["transport"] for row in check(folder, pattern, ranks, "mpi")} == {"mpi"}
    (folder / "rows.csv").unlink()
    if pattern == "pp-sendrecv":
        check(folder, pattern, ranks, "shm")
        return
    more = ("--ranks-per-host", ranks // 2) if ranks in (4, 8) else ()
    rows = check(folder, pattern, ranks, "shm", "--algorithm", ",".join(ALGORITHMS), *more)
    expected = {"direct", "hierarchical"} if pattern == "moe-alltoall" else set(ALGORITHMS)
    if ranks > 1:
        assert {row["algorithm"] for row in rows} >= expected


@pytest.mark.parametrize("ranks", RANKS)
def test_tp_allgather(folder, ranks):
    check_pattern(folder, "tp-allgather", ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_row_allreduce(folder, ranks):
    check_pattern(folder, "row-allreduce", ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_pp_sendrecv(folder, ranks):
    check_pattern(folder, "pp-sendrecv", ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_dp_gradsync(folder, ranks):
    check_pattern(folder, "dp-gradsync", ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_moe_alltoall(folder, ranks):
    check_pattern(folder, "moe-alltoall", ranks)


VARIANTS = [
    ("row-allreduce", 4, ("--sequence-parallel",)),
    ("tp-allgather", 2, ("--sequence-parallel",)),
    ("pp-sendrecv", 2, ("--schedule", "gpipe")),
    ("dp-gradsync", 3, ("--zero", "--optimizer", "adam")),
    ("dp-gradsync", 2, ("--bucket-mib", "0.01")),
    ("moe-alltoall", 4, ("--skew", "1.2", "--top-k", "1")),
]


@pytest.mark.parametrize("pattern,ranks,more", VARIANTS)
def test_variants(folder, pattern, ranks, more):
    check(folder, pattern, ranks, "mpi,shm", *more)


def test_dimensions_together(folder):
    """tp 2 x dp 2 x pp 2 on 8 ranks, in the usual order and in another."""
    for order in ("tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp"):
        result = mpiexec(8, "dp-gradsync", "--tp", 2, "--dp", 2, "--pp", 2, "--order", order, "--model", "tiny", "--transport", "shm",
                         "--min-time", 0, "--max-time", "0.02", "--csv", folder / f"{order}.csv", timeout=120)
        assert result.code == 0, result
        rows = assert_all_verified(read_rows(folder / f"{order}.csv"))
        assert {(row["tp"], row["dp"], row["pp"], row["world"]) for row in rows} == {("2", "2", "2", "8")}


def test_all_phases_and_the_json(folder):
    """Four phases, and a JSON file that says what the CSV says."""
    csv, document = folder / "r.csv", folder / "r.json"
    result = mpiexec(2, "tp-allgather", "--transport", "mpi,shm", "--model", "tiny", "--min-time", 0, "--max-time", "0.05",
                     "--csv", csv, "--json", document)
    assert result.code == 0, result
    rows = assert_all_verified(read_rows(csv))
    assert {row["phase"] for row in rows} == {"compute", "comm", "serial", "overlap"}
    as_json = read_json(document)["rows"]
    assert [row["cell_id"] for row in as_json] == [row["cell_id"] for row in read_rows(csv)]
    for mine, other in zip(read_rows(csv), as_json):
        assert (float(mine["t_p50_us"]) if mine["t_p50_us"] else None) == other["t_p50_us"]


def test_sweep(folder):
    """A message-size sweep of a pattern's collectives, bytes per rank."""
    for pattern, more in (("tp-allgather", ()), ("row-allreduce", ()), ("pp-sendrecv", ()), ("moe-alltoall", ())):
        csv = folder / f"{pattern}.csv"
        result = mpiexec(2, pattern, "--sizes", "8:64K:x8", "--transport", "mpi,shm", "--min-time", 0, "--max-time", "0.02",
                         "--csv", csv, *more)
        assert result.code == 0, result
        rows = assert_all_verified(read_rows(csv))
        assert {int(row["size"]) for row in rows} == {8 * 8**i for i in range(5)}


def test_lists_need_no_launcher(folder):
    """--list-transports and --list-models answer without mpiexec."""
    from harness import program, run
    transports = run([program("tp-allgather"), "--list-transports"])
    assert transports.code == 0 and "mpi" in transports.out and "shm" in transports.out
    models = run([program("tp-allgather"), "--list-models"])
    assert models.code == 0
    for name in ("tiny", "gpt2-small", "gpt3-175b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"):
        assert name in models.out


def test_what_is_not_compared_is_said(folder):
    """A weight gradient behind twelve wide layers costs the reference too much: verified must not hide that."""
    deep = mpiexec(2, "pp-sendrecv", "--model", "gpt2-small", "--seq", 64, "--phase", "comm", "--transport", "shm", "--min-time", 0,
                   "--max-time", "0.02", "--csv", folder / "deep.csv")
    assert deep.code == 0 and "were not compared" in deep.out, deep
    small = mpiexec(2, "pp-sendrecv", "--model", "tiny", "--phase", "comm", "--transport", "shm", "--min-time", 0, "--max-time", "0.02",
                    "--csv", folder / "small.csv")
    assert small.code == 0 and "were not compared" not in small.out, small
