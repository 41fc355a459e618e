# label: mpi
"""Figures of rows against calculations written here on their own, from the flows that the same launch wrote; and the scripts
that show figures, on rows made up here."""
import collections
import csv
import math
import random
import re
import sys
import zlib

import pytest

from harness import TREE, assert_all_verified, mpiexec, read_rows, run

SHORT = ("--phase", "comm", "--min-time", "0", "--max-time", "0.02", "--transport", "shm")


def launched(folder, ranks, pattern, *options):
    """(rows, {cell: [flow]}) of one launch; flows are payload, as dictionaries."""
    rows_csv, flows_csv = folder / f"{len(list(folder.iterdir()))}.csv", folder / "flows.csv"
    result = mpiexec(ranks, pattern, *SHORT, *options, "--csv", rows_csv, "--flows", flows_csv, timeout=120)
    assert result.code == 0, result
    flows = collections.defaultdict(list)
    with open(flows_csv, newline="", encoding="utf-8") as file:
        for flow in csv.DictReader(file):
            if flow["kind"] == "payload" and int(flow["bytes"]):
                flows[flow["cell_id"]].append({**flow, "bytes": int(flow["bytes"]), "source": int(flow["source"]),
                                               "destination": int(flow["destination"]), "channel": int(flow["channel"])})
    return assert_all_verified(read_rows(rows_csv)), flows


def merged(flows):
    """{(source, destination, channel): bytes}."""
    sums = collections.Counter()
    for flow in flows:
        sums[flow["source"], flow["destination"], flow["channel"]] += flow["bytes"]
    return sums


def entropy(parts):
    total = math.fsum(parts)
    return math.fsum(-part / total * math.log(part / total, 2) for part in parts if part)


CASES = [(4, "moe-alltoall", ("--model", "tiny", "--ep", 4, "--skew", "1.2")), (4, "row-allreduce", ("--sizes", "4012")),
         (3, "tp-allgather", ("--model", "tiny", "--tp", 3)), (4, "pp-sendrecv", ("--model", "tiny", "--pp", 4, "--layers", 4))]


@pytest.mark.parametrize("ranks,pattern,options", CASES)
def test_entropy_of_flows(folder, ranks, pattern, options):
    rows, flows = launched(folder, ranks, pattern, *options)
    for row in rows:
        sums = merged(flows[row["cell_id"]])
        bits = entropy(sums.values())
        assert int(row["flows"]) == len(sums) > 1
        assert float(row["entropy_bits"]) == pytest.approx(bits, rel=1e-5)
        assert float(row["effective_flows"]) == pytest.approx(2**bits, rel=1e-5)
        assert float(row["evenness"]) == pytest.approx(bits / math.log2(len(sums)), rel=1e-5)
        sent = collections.defaultdict(list)
        for (source, _, _), size in sums.items():
            sent[source].append(size)
        assert float(row["host_entropy_bits_min"]) == pytest.approx(min(map(entropy, sent.values())), rel=1e-5, abs=1e-12)


def test_entropy_of_what_leaves_a_host(folder):
    """Two ranks a host: what a host sends to the other one."""
    rows, flows = launched(folder, 4, "moe-alltoall", "--model", "tiny", "--ep", 4, "--skew", "1.2", "--ranks-per-host", 2)
    for row in rows:
        sent = collections.defaultdict(list)
        for (source, destination, _), size in merged(flows[row["cell_id"]]).items():
            if source // 2 != destination // 2:
                sent[source // 2].append(size)
        assert float(row["host_entropy_bits_min"]) == pytest.approx(min(map(entropy, sent.values())), rel=1e-5)


def thrown(sizes, paths, times, rng):
    """(mean of max/mean, mean of relative entropy) of flows thrown at random on paths."""
    most, bits = [], []
    for _ in range(times):
        loads = [0.0] * paths
        for size in sizes:
            loads[rng.randrange(paths)] += size
        most.append(max(loads) * paths / sum(loads))
        bits.append(entropy(loads) / math.log2(paths))
    return math.fsum(most) / times, math.fsum(bits) / times


def test_equal_flows_on_eight_paths(folder):
    """1, 4, 16 and 64 equal flows a path; the busiest path over the mean, known from balls thrown into bins."""
    for a_path, known in ((1, 2.60), (4, 1.77), (16, 1.37), (64, 1.18)):
        rows, _ = launched(folder, 2, "tp-allgather", "--sizes", "64K", "--paths", 8, "--ecmp-hash", "ideal", "--qps", 4 * a_path)
        (row,) = rows
        assert (row["paths"], row["ecmp_hash"]) == ("8", "ideal")
        simulated, evenness = thrown([1.0] * (8 * a_path), 8, 2000, random.Random(1))
        assert simulated == pytest.approx(known, rel=0.03)
        assert float(row["path_max_mean"]) == pytest.approx(known, rel=0.03)
        assert float(row["path_entropy"]) == pytest.approx(evenness, rel=0.03)


def test_uneven_flows_on_paths(folder):
    rows, flows = launched(folder, 4, "moe-alltoall", "--model", "tiny", "--ep", 4, "--skew", "1.2", "--paths", 5)
    for row in rows:
        most, evenness = thrown(list(merged(flows[row["cell_id"]]).values()), 5, 4000, random.Random(2))
        assert float(row["path_max_mean"]) == pytest.approx(most, rel=0.03)
        assert float(row["path_entropy"]) == pytest.approx(evenness, rel=0.03)


# RSS's published key and the first of its published examples: 66.9.149.187:2794 -> 161.142.100.80:1766.
KEY = int("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa", 16)


def toeplitz(data):
    bits = int.from_bytes(data, "big")
    value = 0
    for i in range(8 * len(data)):
        if bits >> (8 * len(data) - 1 - i) & 1:
            value ^= KEY >> (320 - 32 - i) & 0xFFFFFFFF
    return value


def test_toeplitz_of_this_file():
    assert toeplitz(bytes([66, 9, 149, 187, 161, 142, 100, 80]) + (2794).to_bytes(2, "big") + (1766).to_bytes(2, "big")) == 0x51CCC178


def tuples_of(sums, queue_pairs):
    """[(12 bytes of addresses and ports, bytes)] of RoCEv2 flows, each rank a host: queue pairs are numbered from 0x11 at each
    host in the order of (rank, peer, channel, queue pair); the source port is what drivers make of a zero flow label."""
    numbers, ends = {}, set()
    for source, destination, channel in sums:
        for q in range(queue_pairs):
            ends |= {(source, destination, channel, q), (destination, source, channel, q)}
    for end in sorted(ends):
        numbers[end] = 0x11 + sum(other[0] == end[0] for other in numbers)
    result = []
    for (source, destination, channel), size in sorted(sums.items()):
        for q in range(queue_pairs):
            v = numbers[source, destination, channel, q] * numbers[destination, source, channel, q]
            v ^= v >> 20
            v ^= v >> 40
            label = v & 0xFFFFF
            port = (label & 0x3FFF) ^ (label & 0xFC000) >> 14 | 0xC000
            words = (0x0A000001 + source).to_bytes(4, "big") + (0x0A000001 + destination).to_bytes(4, "big")
            result.append((words + port.to_bytes(2, "big") + (4791).to_bytes(2, "big"), size / queue_pairs))
    return result


def folded(data):
    value = 17
    for i in range(0, 12, 2):
        value ^= int.from_bytes(data[i:i + 2], "big")
    return value


HASHES = {"crc32": lambda data: zlib.crc32(data + b"\x11"), "toeplitz": toeplitz, "xor": folded}


@pytest.mark.parametrize("name", HASHES)
def test_hashes_of_switches(folder, name):
    rows, flows = launched(folder, 4, "moe-alltoall", "--model", "tiny", "--ep", 4, "--skew", "1.2", "--paths", 8, "--qps", 3,
                           "--ecmp-hash", name)
    for row in rows:
        loads = [0.0] * 8
        for data, size in tuples_of(merged(flows[row["cell_id"]]), 3):
            loads[HASHES[name](data) % 8] += size
        assert float(row["path_max_mean"]) == pytest.approx(max(loads) * 8 / sum(loads), rel=1e-5)
        assert float(row["path_entropy"]) == pytest.approx(entropy(loads) / 3, rel=1e-5)


# ---- scripts that show figures

def show(name, *words):
    return run([sys.executable, TREE / "scripts" / f"{name}.py", *words], timeout=60)


SPEED_HEAD = "schema,launch_id,cell_id,pattern,phase,transport,algorithm,size,cache,world,t_p50_us,t_min_us,noise,verified,skip_reason\n"


def speed_rows(path, times, launches=6, skip=()):
    """Rows of sweeps: times(contender, bytes) in us, with 1% from launch to launch."""
    rng, lines = random.Random(3), []
    for launch in range(launches):
        for collective in ("all_gather", "all_reduce", "all_to_all_v"):
            for cache in ("hot", "rotated"):
                for size in (8, 4096, 65536, 1 << 20, 4 << 20):
                    for transport, algorithm in (("mpi", "default"), ("shm", "auto"), ("bare", "memcpy"), ("bare", "stream")):
                        if transport not in skip:
                            us = times(transport, size) * rng.uniform(0.99, 1.01)
                            rank = size * (2 if collective == "all_to_all_v" else 1)   # to two ranks
                            lines.append(f"weft-2,a{launch:015},{collective[:2]}/sweep/{collective}.{rank}B/f32/tp2/x/comm,p,comm,{transport},"
                                         f"{algorithm},{rank},{cache},2,{us:.6g},{us:.6g},quiet,true,\n")
    path.mkdir()
    (path / "rows.csv").write_text(SPEED_HEAD + "".join(lines))
    plain = [f"{launch},0,{op},2,{size},{rotate},9,0,{times('plain', size)},,0.1\n"
             for launch in range(1, launches + 1) for op in ("allgather", "allreduce", "alltoallv") for rotate in (0, 1 << 24)
             for size in (8, 4096, 65536, 1 << 20, 4 << 20) if not rotate or size >= 4096]
    (path / "plain.csv").write_text("launch,command,op,ranks,size,rotate,samples,late,median_us,back_to_back_us,seconds\n" + "".join(plain))
    return path


def test_show_speed_tells_which_goals_are_missed(folder):
    """Six sweeps: three collectives, hot and rotated."""
    def fine(transport, size):
        return {"mpi": 4, "plain": 4, "shm": 1, "bare": 0.9}[transport] * (1 + size / 1000)

    def changed(name, factor):
        return show("show_speed", "--from", speed_rows(folder / name, lambda t, s: fine(t, s) * factor(t, s)))

    result = changed("fine", lambda t, s: 1)
    assert result.code == 0 and "Missed goals: 0" in result.out, result
    result = changed("slow", lambda t, s: 3 if (t, s) == ("shm", 4096) else 1)
    assert result.code == 1 and "Missed goals: 6" in result.out and "3x" in result.out and "1.5x" in result.out, result
    result = changed("far from the machine's limit", lambda t, s: 0.5 if t == "bare" else 1)
    assert result.code == 1 and "Missed goals: 12" in result.out, result   # 1 and 4 MiB
    result = changed("not the plain loop's time", lambda t, s: 1.2 if (t, s) == ("plain", 8) else 1)
    assert result.code == 1 and "Missed goals: 3" in result.out, result    # hot only
    result = show("show_speed", "--from", speed_rows(folder / "none", fine, skip=("shm",)))
    assert result.code == 3 and "missing" in result.out, result


def test_show_speed_limits_more_ranks_by_the_work_of_all(folder):
    """8 ranks on 2 cores, 30 us of copies each: all of them take 120 us, so the limit is 320 us."""
    def many(shm, bare, quickest):
        path = speed_rows(folder / f"many{shm}", lambda transport, size: {"mpi": 4, "plain": 4, "shm": 1, "bare": 0.9}[transport])
        lines = [f"weft-2,b{launch:015},ag/sweep/all_gather.65536B/f32/tp8/x/comm,p,comm,{transport},{algorithm},65536,hot,8,{us},{least},"
                 "quiet,true,\n" for launch in range(6) for transport, algorithm, us, least in (
                     ("mpi", "default", 9000, 9000), ("shm", "auto", shm, shm), ("bare", "memcpy", bare, quickest))]
        with open(path / "rows.csv", "a", encoding="utf-8") as file:
            file.writelines(lines)
        (path / "rows.csv.provenance.jsonl").write_text('{"cores": 2}\n{"torn')
        return show("show_speed", "--from", path)

    result = many(319, 30, 30)
    assert result.code == 0 and "320" in result.out, result
    result = many(321, 30, 30)
    assert result.code == 1 and "Missed goals: 1" in result.out, result
    assert many(1000, 500, 30).code == 0   # they were in each other's way: 500 us hold all of them


def test_show_repeatability_takes_launches_of_one_state(folder):
    """20 launches of two commands; the machine spent some starts in another state, where everything takes twice as long."""
    rng, slow = random.Random(5), {9, 10, 11, 12, 13, 30}   # probes in the other state; start i is between probes i and i+1
    def trip(probe):
        return 64 if probe in slow else 215

    def us(start, middle, variation):
        return middle * (2 if slow & {start, start + 1} else 1) * math.exp(rng.gauss(0, variation))

    ours, theirs = range(0, 40, 2), range(1, 40, 2)
    (folder / "rows.csv").write_text(SPEED_HEAD + "".join(
        f"weft-2,a{start:015},row/sweep/all_reduce.65536B/f32/tp2/mpi/comm,p,comm,mpi,x,65536,hot,2,{us(start, 30, 0.01):.6g},,quiet,true,\n"
        for start in ours))
    (folder / "plain.csv").write_text("launch,command,op,ranks,size,rotate,samples,late,median_us,back_to_back_us,seconds\n" + "".join(
        f"{start // 2 + 1},1,allreduce,2,65536,0,9,0,30,{us(start, 25, 0.05):.6g},0.4\n" for start in theirs))
    (folder / "states.csv").write_text("launch,command,launch_id,before,after\n" + "".join(
        f"{start // 2 + 1},{start % 2},{'' if start % 2 else f'a{start:015}'},{trip(start)},{trip(start + 1)}\n" for start in range(40)))
    result = show("show_repeatability", "--from", folder)
    # Starts 8 to 13, 29 and 30 touched the other state.
    assert "64 to 215 ns. 32 of 40 starts" in result.out and "near 215 ns" in result.out, result
    assert re.search(r"weft t_p50_us +16 ", result.out) and re.search(r"back to back +16 ", result.out), result
    assert result.code == 0, result


def test_show_repeatability_compares_variations(folder):
    def variation(ours, theirs, launches=30):
        rng = random.Random(4)
        lines = [f"weft-2,a{launch:015},row/sweep/all_reduce.65536B/f32/tp2/mpi/comm,p,comm,mpi,x,65536,hot,2,"
                 f"{30 * math.exp(rng.gauss(0, ours)):.6g},,quiet,true,\n" for launch in range(launches)]
        plain = [f"{launch + 1},1,allreduce,2,65536,0,9,0,30,{25 * math.exp(rng.gauss(0, theirs)):.6g},0.4\n" for launch in range(launches)]
        (folder / "rows.csv").write_text(SPEED_HEAD + "".join(lines))
        (folder / "plain.csv").write_text("launch,command,op,ranks,size,rotate,samples,late,median_us,back_to_back_us,seconds\n" + "".join(plain))
        return show("show_repeatability", "--from", folder)

    assert variation(0.01, 0.05).code == 0
    assert variation(0.05, 0.01).code == 1
    assert variation(0.03, 0.031, 8).code in (1, 3)
    assert variation(0.01, 0.05, 3).code == 3


def test_show_scripts_help_and_wrong_words(folder):
    for script in sorted((TREE / "scripts").glob("show_*.py")):
        result = show(script.stem, "--help")
        assert result.code == 0 and "--launches" in result.out and "--quick" in result.out and "--from" in result.out, result
        result = show(script.stem, "--from", folder)
        assert result.code == 2 and len(result.err.splitlines()) == 1 and str(folder) in result.err, result
        result = show(script.stem, "--launches", "0")
        assert result.code == 2 and "'0'" in result.err, result


def test_show_overlap_needs_its_columns(folder):
    """A column that nobody filled is blank, and the exit code says that the table is not whole."""
    head = SPEED_HEAD.replace("noise", "exposed_us,hidden_share,bubble_us,compute_slowdown,noise")

    def write(derived):
        lines = [f"weft-2,a{launch:015},dp/{transport}/{phase},dp,{phase},{transport},x,,hot,2,{us},,"
                 f"{derived if phase == 'overlap' else ',,,'},quiet,true,\n"
                 for launch in range(3) for transport in ("mpi", "shm")
                 for phase, us in (("compute", 1000), ("comm", 200), ("serial", 1210), ("overlap", 1100))]
        (folder / "rows.csv").write_text(head + "".join(lines))
        return show("show_overlap", "--from", folder)

    result = write("90,0.55,0,1.02")
    assert result.code == 0 and "0.55" in result.out and "9.1%" in result.out, result
    result = write("-10,1.05,0,1.02")
    assert result.code == 0 and "-10" in result.out, result
    assert write(",,,").code == 3
