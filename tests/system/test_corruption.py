# label: mpi
"""Verification is shown to fail: whatever is spoilt on purpose must be found, and gives no performance value."""
import pytest

from harness import DIMENSION, PATTERNS, QUICK, assert_no_performance, mpiexec, read_rows, status_of

MORE = {"pp-sendrecv": ("--layers", "4")}


def inject(folder, pattern, transport, what, *more):
    csv = folder / "rows.csv"
    result = mpiexec(2, pattern, *QUICK, "--phase", "comm,overlap", "--transport", transport, "--inject", what, *MORE.get(pattern, ()),
                     *more, "--csv", csv, timeout=60)
    assert result.code == 1, f"not caught\n{result}"
    assert status_of(csv)["exit_code"] == 1
    wrong = [row for row in read_rows(csv) if row["verified"] == "false"]
    assert wrong, f"exit code 1, but no row says verified=false\n{result}"
    for row in wrong:
        assert_no_performance(row)
    return result


@pytest.mark.parametrize("transport", ["mpi", "shm"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_first_byte(folder, pattern, transport):
    inject(folder, pattern, transport, "corrupt:1:0")


@pytest.mark.parametrize("transport", ["mpi", "shm"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_last_byte(folder, pattern, transport):
    inject(folder, pattern, transport, "corrupt:0:-1")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_swapped_blocks(folder, pattern):
    inject(folder, pattern, "mpi,shm", "swap:1")


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_half_unit_errors(folder, pattern, dtype):
    inject(folder, pattern, "shm", "half:1:3", "--dtype", dtype)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_in_a_message_size_sweep(folder, pattern):
    csv = folder / "rows.csv"
    result = mpiexec(2, pattern, "--min-time", 0, "--max-time", "0.02", "--sizes", "4K", "--transport", "mpi,shm", "--inject",
                     "corrupt:1:4095", "--csv", csv)
    assert result.code == 1, result
    assert any(row["verified"] == "false" for row in read_rows(csv))


def test_the_message_names_what_is_wrong(folder):
    """Rank, host and what differs, so that somebody can look there."""
    for pattern in PATTERNS:
        result = inject(folder, pattern, "shm", "corrupt:1:0")
        assert "rank 1" in result.text, result
        (folder / "rows.csv").unlink()


def test_a_sound_run_is_not_accused(folder):
    """The same commands without injection pass: the bound is not below what rounding does."""
    for pattern in PATTERNS:
        for dtype in ("f32", "bf16", "f16"):
            csv = folder / f"{pattern}-{dtype}.csv"
            result = mpiexec(2, pattern, *QUICK, "--phase", "comm", "--transport", "mpi,shm", "--dtype", dtype, "--seed", 7,
                             *MORE.get(pattern, ()), "--csv", csv)
            assert result.code == 0, result
            assert DIMENSION[pattern] in {row["dimension"] for row in read_rows(csv)}
