# label: slow
"""Messages above 2 GiB, and offsets above 2 GiB of small parts: right to the last byte, or skipped with the numbers."""
import re

import pytest

from harness import assert_no_performance, mpiexec, program, read_rows, run

ABOVE = 2_147_483_652   # 2^31 + 4


def available_gib():
    with open("/proc/meminfo", encoding="ascii") as file:
        return int(re.search(r"MemAvailable:\s+(\d+)", file.read()).group(1)) / 2**20


def check(result, csv, size):
    assert result.code == 0, result
    rows = read_rows(csv)
    assert rows
    for row in rows:
        assert int(row["size"]) == size
        assert not any(value.startswith("-") for name, value in row.items() if name.startswith(("bytes", "flow_bytes", "message_bytes")))
        if row["skip_reason"]:
            assert_no_performance(row)
            assert re.search(r"\d", row["skip_reason"])
        else:
            assert row["verified"] == "true"
    return rows


@pytest.mark.parametrize("transport", ["mpi", "shm"])
def test_one_message_above_2_gib(folder, transport):
    if available_gib() < 16:
        pytest.skip(f"16 GiB of free memory are needed, {available_gib():.0f} are here")
    csv = folder / "r.csv"
    result = mpiexec(2, "pp-sendrecv", "--pp", 2, "--transport", transport, "--sizes", f"{ABOVE}:{ABOVE}:x2", "--min-time", 0, "--max-time", 5,
                     "--timeout", 120, "--csv", csv, timeout=280)
    rows = check(result, csv, ABOVE)
    for row in rows:
        if transport == "shm" and not row["skip_reason"]:
            assert int(row["bytes_wire"]) % ABOVE == 0 and int(row["bytes_wire"]) > 0


@pytest.mark.parametrize("pattern", ["tp-allgather", "moe-alltoall"])
def test_offsets_above_2_gib(folder, pattern):
    """Four parts that fit a 32-bit count, and offsets that do not."""
    if available_gib() < 20:
        pytest.skip(f"20 GiB of free memory are needed, {available_gib():.0f} are here")
    csv, size = folder / "r.csv", 550_000_128 if pattern == "tp-allgather" else 2_199_999_984
    result = mpiexec(4, pattern, "--transport", "mpi", "--sizes", size, "--min-time", 0, "--max-time", 2, "--timeout", 200, "--csv", csv,
                     timeout=280)
    check(result, csv, size)


def test_too_little_memory_is_said(folder):
    """An address space that is too small: no crash, the numbers are told."""
    csv = folder / "r.csv"
    command = ["sh", "-c", 'ulimit -v 3000000; exec "$@"', "sh"]
    result = mpiexec(2, "pp-sendrecv", "--transport", "shm", "--sizes", "2G", "--min-time", 0, "--csv", csv, prefix=command, timeout=60)
    rows = read_rows(csv) if csv.exists() else []
    skipped = [row for row in rows if row["skip_reason"]]
    assert result.code in (0, 1, 2), result
    assert skipped or (result.code == 2 and re.search(r"memory", result.err)), result
    assert not [row for row in rows if row["verified"] == "false"]


def test_a_plan_for_262144_ranks_is_exact():
    result = run([program("tp-allgather"), "--show-plan", "--model", "gpt3-175b", "--tp", 8, "--dp", 2048, "--pp", 16, "--dtype", "bf16"],
                 timeout=30)
    assert result.code == 0, result
    assert re.search(r"201[,_ ]?326[,_ ]?592", result.out), result
