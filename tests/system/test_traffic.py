# label: mpi
"""Traffic figures: against closed forms, between files, and a trace that an independent reader follows."""
import csv
import math
import statistics

import pytest

from harness import mpiexec, read_json, read_rows

SHORT = ("--min-time", "0", "--max-time", "0.05", "--model", "tiny")


def measure(folder, ranks, pattern, *arguments, code=0):
    result = mpiexec(ranks, pattern, *SHORT, *arguments, "--csv", folder / "rows.csv", timeout=120)
    assert result.code == code, result
    return read_rows(folder / "rows.csv")


def table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def entropy(sizes):
    total = sum(sizes)
    return sum(size / total * math.log2(total / size) for size in sizes if size)


def check_flows(row, flows, elephant=10**6):
    """A row's figures of flows, computed again from --flows."""
    pairs = {}
    for flow in flows:
        if flow["kind"] == "payload":
            key = flow["source"], flow["destination"], flow["channel"]
            pairs[key] = pairs.get(key, 0) + int(flow["bytes"])
    sizes = sorted(pairs.values())
    assert int(row["flows"]) == len(sizes)
    assert int(row["flow_bytes_min"]) == sizes[0] and int(row["flow_bytes_max"]) == sizes[-1]
    assert int(row["flow_bytes_p50"]) == sizes[math.ceil(len(sizes) / 2) - 1]
    assert int(row["elephants"]) == sum(size >= elephant for size in sizes)
    share = sum(size for size in sizes if size >= elephant) / sum(sizes)
    assert float(row["elephant_share"]) == pytest.approx(share, rel=1e-5)
    assert float(row["entropy_bits"]) == pytest.approx(entropy(sizes), abs=1e-4)
    assert float(row["effective_flows"]) == pytest.approx(2 ** entropy(sizes), rel=1e-4)
    fan_in = {}
    for source, destination, _ in pairs:
        fan_in.setdefault(destination, set()).add(source)
    assert int(row["fan_in_max"]) == max(map(len, fan_in.values()))


def test_figures_agree_with_the_flows(folder):
    """AllReduce of 96 KiB by a ring of three: 2(n-1)/n of it on each link, in 4 messages."""
    result = mpiexec(3, "row-allreduce", "--sizes", "96K", "--transport", "shm,mpi", "--algorithm", "ring,default", "--min-time", 0,
                     "--max-time", "0.05", "--csv", folder / "r.csv", "--flows", folder / "f.csv", "--elephant", "100KB", timeout=120)
    assert result.code == 0, result
    rows, flows = read_rows(folder / "r.csv"), table(folder / "f.csv")
    for row in rows:
        mine = [flow for flow in flows if flow["cell_id"] == row["cell_id"]]
        source = "predicted" if row["transport"] == "mpi" else "recorded"
        assert row["flow_source"] == source and {flow["flow_source"] for flow in mine} == {source}
        check_flows(row, mine, elephant=10**5)
    ring = [row for row in rows if row["transport"] == "mpi" and "all_reduce" in row["cell_id"]]
    for row in ring:
        assert (row["flows"], row["messages"], row["fan_in_max"]) == ("3", "12", "1")
        assert row["message_bytes_min"] == row["message_bytes_max"] == str(32 * 1024)
        assert row["flow_bytes_max"] == str(4 * 32 * 1024)
        # 32 KiB at 4096: 4096+78, six of 4096+62, 4096+66; one acknowledgement a message.
        assert row["packet_histogram"] == "66 x 12 + 4158 x 72 + 4162 x 12 + 4174 x 12"
        assert (row["packets"], row["ack_packets"]) == ("96", "12")
        assert row["bytes_wire"] == "" and row["wire_GBps"] == ""
        assert row["burst_source"] == "" and row["duty_cycle"] == ""
        assert row["needs_lossless"] == "true"


def test_recorded_and_predicted_agree(folder):
    """Under the same named algorithm, what was posted is what the schedule says."""
    result = mpiexec(4, "tp-allgather", "--sizes", "64K", "--transport", "shm,mpi", "--algorithm", "ring,default", "--min-time", 0,
                     "--max-time", "0.05", "--csv", folder / "r.csv", timeout=120)
    assert result.code == 0, result
    rows = {(row["cell_id"].split("/")[2], row["transport"], row["algorithm"]): row for row in read_rows(folder / "r.csv")}
    compared = 0
    for (shape, transport, algorithm), row in rows.items():
        if transport == "shm" and algorithm == "ring":
            other = rows[shape, "mpi", "default"]
            for column in ("messages", "message_bytes_p50", "flows", "flow_bytes_max", "entropy_bits", "packets", "fan_in_max"):
                assert row[column] == other[column], (shape, column)
            compared += 1
    assert compared


def test_paths_and_their_hashes(folder):
    """An ideal hash, and one that puts a pair's flow on one path."""
    for name in ("ideal", "crc32", "toeplitz", "xor"):
        csv_path = folder / f"{name}.csv"
        result = mpiexec(4, "moe-alltoall", *SHORT, "--phase", "comm", "--transport", "shm", "--ecmp-hash", name, "--paths", 4, "--qps", 2,
                         "--csv", csv_path)
        assert result.code == 0, result
        for row in read_rows(csv_path):
            assert (row["paths"], row["ecmp_hash"], row["qps"]) == ("4", name, "2")
            assert 1 <= float(row["path_max_mean"]) <= 4
            assert 0 <= float(row["path_entropy"]) <= 1


def test_bad_values_name_cause_and_remedy(folder):
    for arguments, parts in ((("--ecmp-hash", "md5"), ("md5", "crc32")), (("--paths", "0"), ("--paths", "1")),
                             (("--elephant", "0"), ("--elephant",)), (("--link-rate", "-1"), ("--link-rate",)),
                             (("--link-rate", "fast"), ("--link-rate", "fast")), (("--qps", "0"), ("--qps",)),
                             (("--trace", "/nowhere/t.json"), ("/nowhere/t.json",)), (("--traffic", "/nowhere/t.csv"), ("/nowhere",))):
        result = mpiexec(2, "tp-allgather", *SHORT, *arguments, "--csv", "none")
        assert result.code == 2, result
        assert all(part in result.err for part in parts), result


def test_dimensions_and_networks_add_up(folder):
    """tp 2 x dp 2 over two virtual hosts: parts add up to the row, in bytes and in messages."""
    traffic = folder / "t.csv"
    rows = measure(folder, 4, "dp-gradsync", "--tp", 2, "--dp", 2, "--ranks-per-host", 2, "--transport", "shm", "--phase", "comm,overlap",
                   "--traffic", traffic, "--link-rate", 100)
    parts = table(traffic)
    assert {part["network"] for part in parts} <= {"scale_up", "scale_out"}
    for row in rows:
        mine = [part for part in parts if part["cell_id"] == row["cell_id"]]
        assert mine and sum(int(part["bytes_wire"]) for part in mine) == int(row["bytes_wire"])
        assert sum(int(part["messages"]) for part in mine) == int(row["messages"])
        out = sum(int(part["bytes_wire"]) for part in mine if part["network"] == "scale_out")
        assert out == int(row["bytes_scale_out"]) > 0
        assert float(row["link_util_scale_out"]) > 0 and "--link-rate 100 Gbit/s" in row["link_rate_source"]
    assert (folder / "t.csv.provenance.jsonl").exists()


def test_frequency_is_of_the_cells_own_phase(folder):
    """Windows that fit have figures within their bounds; the plain column is the smallest that fits."""
    rows = measure(folder, 2, "tp-allgather", "--transport", "shm", "--seq", 512, "--phase", "compute,comm,overlap")
    for row in rows:
        if row["phase"] == "compute":
            assert row["burst_source"] == row["flow_source"] == ""
            continue
        if row["burst_source"] == "":
            continue  # the wire told no times
        assert float(row["msgs_per_s"]) > 0 and float(row["gap_p50_us"]) >= 0
        assert 1 <= int(row["flows_concurrent_max"]) <= int(row["flows"])
        assert 1 <= int(row["fan_in_concurrent_max"]) <= int(row["fan_in_max"])
        for window in ("100us", "1ms", "10ms"):
            if row[f"duty_cycle_{window}"]:
                assert 0 < float(row[f"duty_cycle_{window}"]) <= 1
                assert float(row[f"peak_to_mean_{window}"]) >= 1 - 1e-6
        fitting = [row[f"duty_cycle_{window}"] for window in ("100us", "1ms", "10ms") if row[f"duty_cycle_{window}"]]
        assert row["duty_cycle"] == (fitting[0] if fitting else "")


def assert_numbers(row):
    bad = {name: value for name, value in row.items() if value.lower().lstrip("-") in ("nan", "inf")}
    assert not bad, bad


def test_nothing_sent_is_no_nan(folder):
    """One rank, and a matrix of tokens without tokens for others."""
    for row in measure(folder, 1, "tp-allgather", "--transport", "shm,mpi"):
        assert_numbers(row)
    matrix = folder / "matrix.csv"
    matrix.write_text("64,0\n0,64\n")
    (folder / "rows.csv").unlink()
    rows = measure(folder, 2, "moe-alltoall", "--transport", "shm,mpi", "--phase", "comm", "--seq", 64, "--top-k", 1, "--token-matrix", matrix)
    for row in rows:
        assert_numbers(row)
        if row["skip_reason"] == "" and row["messages"] == "0":
            assert row["entropy_bits"] == row["path_max_mean"] == row["message_bytes_p50"] == ""


def test_samples_are_complete(folder):
    """A line a rank and iteration; late ones flagged; medians come out again."""
    samples = folder / "s.csv"
    rows = measure(folder, 2, "tp-allgather", "--transport", "shm", "--phase", "comm", "--samples", samples)
    lines = table(samples)
    for row in rows:
        mine = [line for line in lines if line["cell_id"] == row["cell_id"]]
        attempts = {line.get("attempt", "1") for line in mine}
        by_iteration = {}
        for line in mine:
            by_iteration.setdefault((line.get("attempt", "1"), line["iteration"]), []).append(line)
        assert all({line["rank"] for line in group} == {"0", "1"} and len(group) == 2 for group in by_iteration.values())
        valid = [group for group in by_iteration.values() if all(line["valid"] == "true" for line in group)]
        late = [group for group in by_iteration.values() if any(line["valid"] == "false" for line in group)]
        if len(attempts) == 1:
            assert len(valid) == int(row["n"]) and len(late) == int(row["late"])
            times = [max(float(line["end_us"]) - float(line["start_us"]) for line in group) for group in valid]
            assert statistics.median(times) == pytest.approx(float(row["t_p50_us"]), rel=0.02, abs=0.01)


def read_trace(path):
    """An independent reading of the trace: slices by thread, arrows by id."""
    document = read_json(path)
    assert document["otherData"]["provenance"]["command_line"]
    events = document["traceEvents"]
    slices, arrows, processes, last = {}, {}, {}, 0.0
    for event in events:
        assert event["ph"] in "MXsf" and isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            continue
        assert event["ts"] >= last, "events are not in the order of time"
        last = event["ts"]
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["name"] and isinstance(event["args"], dict)
            slices.setdefault((event["pid"], event["tid"]), []).append(event)
        else:
            arrows.setdefault((event["cat"], event["id"]), {})[event["ph"]] = event
    return slices, arrows, processes


def slice_at(slices, event):
    found = [s for s in slices[event["pid"], event["tid"]] if s["ts"] - 1e-9 <= event["ts"] <= s["ts"] + s["dur"] + 1e-9]
    assert found, f"an arrow that begins or ends in no slice: {event}"
    return found


def test_trace_opens_and_is_true(folder):
    """Slices of a thread do not overlap; arrows have two ends in slices; who waits begins after what it waits for."""
    trace = folder / "t.json"
    measure(folder, 2, "tp-allgather", "--transport", "shm", "--trace", trace)
    slices, arrows, processes = read_trace(trace)
    assert {name for pid, name in processes.items() if pid <= 2} == {name for name in processes.values() if name.startswith("rank ")}
    assert len([name for name in processes.values() if name.startswith(("rank 0 on ", "rank 1 on "))]) == 2
    for thread in slices.values():
        for before, after in zip(thread, thread[1:]):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-9, (before, after)
    kinds = {}
    for (kind, _), ends in arrows.items():
        assert set(ends) == {"s", "f"} and ends["s"]["ts"] <= ends["f"]["ts"]
        sender, receiver = slice_at(slices, ends["s"]), slice_at(slices, ends["f"])
        if kind == "dependency":
            assert ends["s"]["pid"] == ends["f"]["pid"] and ends["s"]["tid"] != ends["f"]["tid"]
            assert min(s["ts"] + s["dur"] for s in sender) <= max(s["ts"] for s in receiver) + 1e-9
        if kind == "message":
            assert any(s["args"]["destination"] + 1 == ends["f"]["pid"] for s in sender)
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds.get("dependency", 0) > 0
    iterations = [s for (pid, _), thread in slices.items() if not processes[pid].startswith("rank ") for s in thread]
    assert {s["name"].rsplit("/", 1)[1] for s in iterations} == {"compute", "comm", "serial", "overlap"}


def test_trace_of_a_run_without_cells_is_a_document(folder):
    trace = folder / "t.json"
    mpiexec(2, "tp-allgather", *SHORT, "--trace", trace, "--csv", "none", "--benchmark_filter=no_such_cell")
    assert read_json(trace)["traceEvents"] == []
