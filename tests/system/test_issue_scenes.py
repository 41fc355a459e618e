# label: mpi
"""Whole commands whose traffic is known in advance, from formulas written here on their own."""
import collections
import csv
import json
import re

import pytest

from harness import PATTERNS, assert_all_verified, mpiexec, program, read_rows, run

SHORT = ("--min-time", "0", "--max-time", "0.05")


def read_flows(path):
    """Payload flows by cell: {cell_id: {(source, destination): bytes}}."""
    cells = collections.defaultdict(lambda: collections.defaultdict(int))
    with open(path, newline="", encoding="utf-8") as file:
        for flow in csv.DictReader(file):
            if flow["kind"] == "payload":
                cells[flow["cell_id"]][int(flow["source"]), int(flow["destination"])] += int(flow["bytes"])
    return cells


def test_skewed_experts_make_uneven_flows_that_add_up(folder):
    rows_csv, flows_csv = folder / "rows.csv", folder / "flows.csv"
    result = mpiexec(4, "moe-alltoall", "--transport", "shm,mpi", "--model", "tiny", "--ep", 4, "--skew", "1.2", *SHORT,
                     "--csv", rows_csv, "--flows", flows_csv, timeout=120)
    assert result.code == 0, result
    rows, flows = assert_all_verified(read_rows(rows_csv)), read_flows(flows_csv)
    sending = [row for row in rows if row["transport"] == "shm" and row["phase"] != "compute"]
    assert sending
    for row in sending:
        cell = flows[row["cell_id"]]
        assert int(row["bytes_wire"]) == sum(cell.values()) > 0
        assert int(row["flows"]) == len([b for b in cell.values() if b])
        assert all(source != destination for source, destination in cell)
    assert any(len(set(flows[row["cell_id"]].values())) > 1 for row in sending), "skewed experts, but even flows"
    for row in rows:
        if row["transport"] == "mpi":
            assert row["bytes_wire"] == ""
            assert row["phase"] == "compute" or int(row["bytes_logical"]) > 0
    logical = {(row["direction"], row["phase"]): row["bytes_logical"] for row in sending}
    for row in rows:
        if row["transport"] == "mpi" and row["phase"] != "compute":
            assert row["bytes_logical"] == logical[row["direction"], row["phase"]], "the transports were asked for different bytes"


def parts(total, n):
    """How `total` elements fall on n ranks: the first total % n have one more."""
    return [total // n + (i < total % n) for i in range(n)]


def ring_flows(elements, n):
    """AllReduce as a ring: rank r sends to r+1, a part in each of n-1 rounds of reduction, after which it has the sum of
    part r, and a part in each of n-1 rounds of gathering."""
    part, flows = parts(elements, n), collections.Counter()
    for r in range(n):
        for round_ in range(n - 1):
            flows[r, (r + 1) % n] += part[(r - 1 - round_) % n] + part[(r - round_) % n]
    return flows


def direct_flows(elements, n):
    """AllReduce by direct scatter: everybody's part d goes to d, and the sum of part r from r to all."""
    part, flows = parts(elements, n), collections.Counter()
    for r in range(n):
        for d in range(n):
            if r != d:
                flows[r, d] += part[d] + part[r]
    return flows


def test_three_algorithms_give_one_result_and_three_pictures(folder):
    ranks, host = 8, 4
    rows_csv, flows_csv = folder / "rows.csv", folder / "flows.csv"
    result = mpiexec(ranks, "dp-gradsync", "--dp", ranks, "--transport", "shm", "--algorithm", "ring,direct,hierarchical",
                     "--ranks-per-host", host, "--model", "tiny", "--phase", "comm", *SHORT, "--csv", rows_csv, "--flows", flows_csv,
                     timeout=120)
    assert result.code == 0, result
    rows, flows = assert_all_verified(read_rows(rows_csv)), read_flows(flows_csv)
    by_algorithm = {row["algorithm"]: row for row in rows}
    assert set(by_algorithm) == {"ring", "direct", "hierarchical"}
    assert {(row["hosts"], row["virtual_hosts"]) for row in rows} == {("1", "2")}
    logical = {int(row["bytes_logical"]) for row in rows}
    assert len(logical) == 1
    total = 2 * (ranks - 1) * logical.pop()   # AllReduce sends 2M(n-1)/n a rank, n ranks
    for name, row in by_algorithm.items():
        assert sum(flows[row["cell_id"]].values()) == int(row["bytes_wire"]) == total, name

    ring, direct, two_level = (flows[by_algorithm[name]["cell_id"]] for name in ("ring", "direct", "hierarchical"))
    assert set(ring) == {(r, (r + 1) % ranks) for r in range(ranks)}
    assert set(direct) == {(r, d) for r in range(ranks) for d in range(ranks) if r != d}
    assert all(a // host == b // host or a % host == b % host for a, b in two_level), "between hosts only rank i with rank i"
    assert len(two_level) == ranks * (host - 1) + ranks

    def between_hosts(cell):
        return sum(size for (a, b), size in cell.items() if a // host != b // host)

    message = total // (2 * (ranks - 1))
    assert between_hosts(ring) == pytest.approx(2 * 2 * message * (ranks - 1) / ranks, rel=1e-3)   # two edges cross
    assert between_hosts(direct) == pytest.approx(ranks * host * 2 * message / ranks, rel=1e-3)      # 4 peers of 7 are off-host
    assert between_hosts(two_level) == pytest.approx(ranks * 2 * (message / host) / 2, rel=1e-3)     # only the sums, halved once
    for name, cell in (("ring", ring), ("direct", direct), ("hierarchical", two_level)):
        assert int(by_algorithm[name]["bytes_scale_out"]) == between_hosts(cell)
        assert int(by_algorithm[name]["bytes_scale_up"]) == total - between_hosts(cell)


def test_flows_of_uneven_parts(folder):
    """A sweep whose elements do not divide by the ranks: the flows of each schedule, to the byte."""
    ranks, elements = 5, 1003
    for algorithm, expected in (("ring", ring_flows), ("direct", direct_flows)):
        rows_csv, flows_csv = folder / f"{algorithm}.csv", folder / f"{algorithm}.flows"
        result = mpiexec(ranks, "row-allreduce", "--sizes", 4 * elements, "--transport", "shm", "--algorithm", algorithm, *SHORT,
                         "--csv", rows_csv, "--flows", flows_csv)
        assert result.code == 0, result
        rows, flows = assert_all_verified(read_rows(rows_csv)), read_flows(flows_csv)
        wanted = {pair: 4 * count for pair, count in expected(elements, ranks).items()}
        reduce_rows = [row for row in rows if dict(flows[row["cell_id"]]) == wanted]
        assert reduce_rows, f"{algorithm}: no cell has the flows {wanted}, but {[dict(cell) for cell in flows.values()]}"


def plan(pattern, *options):
    """The JSON of --show-plan, started without mpiexec."""
    result = run([program(pattern), "--show-plan", "json", *options], timeout=30)
    assert result.code == 0, result
    return json.loads(result.out)


def numbers(value):
    """All numbers anywhere in a JSON value."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*map(numbers, value)) if value else set()
    return {value} if isinstance(value, (int, float)) and not isinstance(value, bool) else set()


T, H, F, E = 2048, 12288, 49152, 2   # gpt3-175b, one sequence, bf16
GPT3 = ("--model", "gpt3-175b", "--dtype", "bf16", "--micro-batch", "1")


@pytest.mark.parametrize("pattern,options,message", [
    ("tp-allgather", ("--tp", 8), 201_326_592),     # T f e
    ("row-allreduce", ("--tp", 8), 50_331_648),     # T h e
    ("pp-sendrecv", ("--pp", 8), 50_331_648),       # T h e to the next stage
])
def test_predicted_bytes_of_gpt3(pattern, options, message):
    assert message in (T * F * E, T * H * E)
    assert message in numbers(plan(pattern, *GPT3, *options))


def test_predicted_bytes_with_sequence_parallelism():
    """A pipeline message is split over tp 8: 6.29 MB."""
    found = numbers(plan("pp-sendrecv", *GPT3, "--pp", 8, "--tp", 8, "--sequence-parallel"))
    assert T * H * E // 8 == 6_291_456 and 6_291_456 in found


def test_predicted_bytes_of_gradients():
    """One FFN of gpt3-175b over tp 8 and dp 8: 2 phi g (d-1)/d, phi the local parameters, g = 4."""
    parameters = 2 * H * F // 8 + F // 8 + H   # both matrices and the first bias are shared out, the second bias is not
    (case,) = plan("dp-gradsync", *GPT3, "--tp", 8, "--dp", 8, "--layers", 1, "--direction", "backward")["cases"]
    operations = [op for op in case["ranks"][0]["operations"] if op["operation"] == "all_reduce" and op["dimension"] == "dp"]
    assert sum(op["times"] * op["message_bytes"] for op in operations) == 4 * parameters
    assert sum(op["times"] * op["sent_bytes"] for op in operations) == 2 * 4 * parameters * 7 // 8
    for name in ("ring", "direct"):
        sent = [wire["times"] * wire["sent_bytes"][name] for wire in case["ranks"][0]["predicted_wire"]]
        assert sum(sent) == 2 * 4 * parameters * 7 // 8


def test_predicted_bytes_of_mixtral():
    """T k h e for dispatch: 2048 tokens, 2 experts each, 4096 wide, bf16."""
    message = 2048 * 2 * 4096 * 2
    found = numbers(plan("moe-alltoall", "--model", "mixtral-8x7b", "--ep", 8, "--dtype", "bf16", "--seq", 2048))
    assert message in found


def test_a_plan_of_a_quarter_million_ranks_takes_no_time():
    """64-bit totals, nothing expanded."""
    result = run([program("dp-gradsync"), "--show-plan", *GPT3, "--tp", 8, "--pp", 16, "--dp", 2048, "--layers", 96])
    assert result.code == 0, result
    assert not re.search(r"(?<![\w.])-\d{4,}", result.out), "a negative number of bytes"


SCENES = [  # scene, program, what the source's figure says
    ("S4", "tp-allgather", ("n1", "n4", "AllGather")),
    ("S13", "row-allreduce", ()),
    ("S14", "tp-allgather", ("AllGather",)),
    ("S15", "row-allreduce", ("AllReduce",)),
    ("S18", "row-allreduce", ("900", "450")),
    ("S19", "row-allreduce", ("ReduceScatter", "AllGather")),
    ("S20", "moe-alltoall", ("top",)),
]


@pytest.mark.parametrize("scene,pattern,words", SCENES)
def test_scenes(folder, scene, pattern, words):
    result = mpiexec(2, pattern, "--scene", scene, *SHORT, "--csv", folder / "r.csv", timeout=120)
    assert result.code == 0, result
    lowered = result.out.lower()
    for word in words:
        assert word.lower() in lowered, f"{scene}: '{word}' is not in\n{result.out}"
    assert f"scene {scene.lower()}" in lowered


def test_the_traffic_sheet_is_printed(folder):
    for pattern in PATTERNS:
        more = ("--layers", 4) if pattern == "pp-sendrecv" else ()
        result = mpiexec(2, pattern, "--model", "tiny", "--phase", "comm", *SHORT, *more, "--csv", folder / "r.csv")
        assert result.code == 0, result
        assert "traffic" in result.out.lower() and str(folder / "r.csv") in result.out
