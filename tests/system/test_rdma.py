# label: rdma
"""Transport verbs on a real kernel stack: Soft-RoCE in virtual machines (tests/lab)."""
import csv
import re

from harness import BUILD, assert_all_verified, mpiexec_command, read_rows, status_of
from pcap_flows import FlowKey, read_flows
from vm_lab import RDMA, RDMA_UP, in_guest, mpiexec_over_two, run_in_two_vms, run_in_vm, told

SHORT = ("--min-time", 0, "--max-time", 0.05)
PATTERNS = ("tp-allgather", "row-allreduce", "pp-sendrecv", "dp-gradsync", "moe-alltoall")


def steps(*lines):
    """A script of named commands: each one's output in NAME.out and NAME.err, its exit code in NAME.code."""
    return "\n".join(f"({command}) >{name}.out 2>{name}.err; echo $? >{name}.code" for name, command in lines)


def in_rdma_vm(folder, script, **more):
    return run_in_vm(folder, f"{RDMA_UP}\n{script}", modules=RDMA, **more)


def codes(folder):
    return {path.stem: int(path.read_text()) for path in folder.glob("*.code")}


def said(folder, name):
    return (folder / f"{name}.err").read_text()


def everything(folder):
    return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(folder.glob("*.err")))


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def weft(ranks, pattern, *options):
    return in_guest(mpiexec_command(ranks, pattern, *options))


# Of four ranks, what is not the same with two.
CONTRACT = {2: "*", 4: "*collectives_f32:verbs_native.*"}


def test_contract(folder):
    """What every transport promises, on real queue pairs: every collective by every algorithm."""
    lines = [(f"contract{ranks}", f"timeout -k 5 200 mpiexec -n {ranks} {BUILD}/bin/test-mpi-contract verbs --gtest_filter={chosen} </dev/null")
             for ranks, chosen in CONTRACT.items()]
    result = in_rdma_vm(folder, steps(*lines), timeout=400)
    assert result.code == 0, result.err
    for name, _ in lines:
        out = (folder / f"{name}.out").read_text()
        assert codes(folder)[name] == 0, out[-3000:] + said(folder, name)
        assert "[  PASSED  ]" in out and "FAILED" not in out


def test_patterns(folder):
    """Each by its model, with few tokens: the reference, in an emulated machine, would take most of the time."""
    def line(ranks, pattern, phases, layers=1):
        name = f"{pattern}{ranks}"
        return name, weft(ranks, pattern, "--transport", "verbs", "--model", "tiny", "--seq", 8, "--layers", layers, "--phase", phases, *SHORT,
                          "--csv", f"{name}.csv")
    check_runs(folder, [line(2, pattern, "comm,overlap", 2 if pattern == "pp-sendrecv" else 1) for pattern in PATTERNS]
               + [line(4, "pp-sendrecv", "comm", 4), line(4, "moe-alltoall", "comm")])   # whose messages are others then


def check_runs(folder, lines, flows="recorded"):
    result = in_rdma_vm(folder, steps(*lines), timeout=300)
    assert result.code == 0, result.err
    assert codes(folder) == {name: 0 for name, _ in lines}, everything(folder)
    for name, _ in lines:
        rows = assert_all_verified(read_rows(folder / f"{name}.csv"))
        assert {row["transport"] for row in rows} == {"verbs"}, name
        assert flows is None or {row["flow_source"] for row in rows} == {flows}, name


def test_modes(folder):
    """Several queue pairs, modes of spreading and of signals: right, and recorded by queue pair."""
    modes = {"robin": ("--qps", 4), "split": ("--qps", 4, "--qp-mode", "split"), "write": ("--signal", "write"),
             "credits": ("--eager", 0, "--qps", 2), "small": ("--path-mtu", 1024, "--qps", 3, "--qp-mode", "split")}
    check_runs(folder, [(name, weft(2, "row-allreduce", "--transport", "verbs", "--algorithm", "native,ring", "--sizes", "8,4K,100000",
                                    *SHORT, *more, "--csv", f"{name}.csv", "--flows", f"{name}.flows")) for name, more in modes.items()]
               + [("groups", weft(4, "dp-gradsync", "--transport", "verbs", "--tp", 2, "--dp", 2, "--model", "tiny", "--layers", 1, "--phase", "comm",
                                  *SHORT, "--csv", "groups.csv", "--queue-pairs", "groups.pairs"))])
    for name, parts in (("robin", 1), ("split", 4), ("small", 3)):
        spread = {}   # (cell, sender) -> queue pairs of a large message
        for row in table(folder / f"{name}.flows"):
            if row["kind"] == "payload" and "reduce_scatter.100000B" in row["cell_id"] and "native" in row["cell_id"]:
                spread.setdefault((row["cell_id"], row["source"]), []).append(row["channel"])
        assert spread and {len(channels) for channels in spread.values()} == {parts}, (name, spread)
        assert all(len(set(channels)) == len(channels) for channels in spread.values()), (name, spread)
    # Only ranks that have to do with each other are connected: those of one dp group, 0 with 2 and 1 with 3.
    assert {(int(row["source"]), int(row["destination"])) for row in table(folder / "groups.pairs")} == {(0, 2), (2, 0), (1, 3), (3, 1)}


def test_pairs(folder):
    """weft-pairs: each way of telling of a message, and more messages in a window than fit into the slots of a peer that sends as well."""
    runs = {"write": (2, ("--signal", "write", "--sizes", "8,64K")), "immediate": (2, ("--sizes", "8,64K")),
            "crowd": (2, ("--signal", "write", "--sizes", "8", "--window", 300)),
            "several": (4, ("--qps", 2, "--sizes", "16K", "--queue-pairs", "several.pairs"))}
    check_runs(folder, [(name, weft(ranks, "pairs", "--transport", "verbs", "--hot", *more, *SHORT, "--timeout", 30, "--csv", f"{name}.csv"))
                        for name, (ranks, more) in runs.items()], flows=None)
    for name, (ranks, _) in runs.items():
        rows = read_rows(folder / f"{name}.csv")
        sizes = 1 if name in ("several", "crowd") else 2
        assert len(rows) == ranks * (ranks - 1) * sizes * 3 == len({row["cell_id"] for row in rows}), name
        for row in rows:
            assert float(row["t_p50_us"]) > 0 and int(row["port_iterations"]) > int(row["n"]), row
            # What the ports sent is what was posted (of two pairs at a time, by both), and what was sent again; with more ranks than
            # cores an acknowledgement stands for several messages.
            least, most = -0.3 if name == "several" else -0.05, 0.3 if int(row["retransmits"]) else 0.05
            assert least < float(row["port_difference"]) < most, row
            assert ("2 pairs at the same time" in row["counter_note"]) == (name == "several"), row
    queues = table(folder / "several.pairs")
    assert len(queues) == 4 * 3 * 2 and all(int(row["udp_source_port"]) and int(row["packets"]) for row in queues), queues


def test_two_machines(folder):
    """What we say was sent is what the cable carried: 5-tuples, payload, packets, bytes of frames. Zero differences."""
    options = ("--transport", "verbs", "--sizes", "64K", "--qps", 4, *SHORT)
    runs = {"gather": ("tp-allgather", ()), "exchange": ("moe-alltoall", ("--qp-mode", "split")), "sum": ("row-allreduce", ("--algorithm", "ring")),
            "reads": ("tp-allgather", ("--algorithm", "pull", "--qp-mode", "split"))}
    lines = [(name, in_guest(mpiexec_over_two(2, pattern, *options, *more, "--csv", f"{name}.csv", "--flows", f"{name}.flows",
                                              "--queue-pairs", f"{name}.pairs"))) for name, (pattern, more) in runs.items()]
    result = run_in_two_vms(folder, steps(*lines), prepare=RDMA_UP, modules=RDMA, timeout=200)
    assert result.first.code == 0, told(result)
    assert codes(folder) == dict.fromkeys(runs, 0), everything(folder)
    seen = read_flows(result.captures[0])
    predicted = {}
    for name in runs:
        rows = assert_all_verified(read_rows(folder / f"{name}.csv"))
        assert {row["hosts"] for row in rows} == {"2"}
        for row in table(folder / f"{name}.pairs"):
            predicted[FlowKey(row["source_address"], row["destination_address"], int(row["udp_source_port"]),
                              int(row["destination_queue_pair"]))] = row
        check_flows(table(folder / f"{name}.flows"), table(folder / f"{name}.pairs"))
    sent = {key: row for key, row in predicted.items() if int(row["packets"]) > 0}
    data = {key: flow for key, flow in seen.items() if flow.packets > 0}
    assert len(sent) >= 2 * (4 + 4 + 4 + 4) and sent.keys() == data.keys()
    for key, row in sent.items():
        flow = data[key]
        assert flow.payload == int(row["posted_bytes"]), (key, flow, row)
        assert flow.packets == int(row["packets"]), (key, flow, row)
        assert sum(size * count for size, count in flow.frames.items()) == int(row["frame_bytes"]), (key, flow, row)
    # Answers go from the receiver's queue pair, by its own port, to the sender's.
    for key, flow in seen.items():
        assert key in predicted, f"{key} is no queue pair of ours: {flow}"
        assert flow.naks.keys() <= {"sequence_error"}, (key, flow)


def check_flows(flows, pairs):
    """An iteration's flows are on queue pairs that are listed, and all that was sent is whole iterations of them."""
    known = {(row["cell_id"], row["source"], row["destination"], row["channel"]): row for row in pairs}
    payload = [row for row in flows if row["kind"] == "payload"]
    assert payload
    for row in payload:
        pair = known[row["cell_id"], row["source"], row["destination"], row["channel"]]
        assert (row["source_queue_pair"], row["destination_queue_pair"]) == (pair["source_queue_pair"], pair["destination_queue_pair"])
        assert row["udp_source_port"] == pair["udp_source_port"] and row["source_address"] == pair["source_address"]
        assert int(pair["payload_bytes"]) >= int(row["bytes"])


def test_odd_counters(folder):
    """C22: counters that hold words or nothing: unknown is blank and says why, the run goes on."""
    run = weft(2, "tp-allgather", "--transport", "verbs", "--sizes", "4K", *SHORT, "--csv", "FILE")
    counters = "/sys/class/infiniband/rxe0/ports/1/hw_counters"
    result = in_rdma_vm(folder, steps(("sound", run.replace("FILE", "sound.csv")), ("odd", f"""
echo 'N/A (no PMA)' >words; : >empty
mount --bind words {counters}/sent_pkts; mount --bind empty {counters}/duplicate_request
{run.replace('FILE', 'odd.csv')}""")), timeout=120)
    assert result.code == 0 and codes(folder) == {"sound": 0, "odd": 0}, everything(folder)
    (sound,), (odd,) = (assert_all_verified(read_rows(folder / f"{name}.csv")) for name in ("sound", "odd"))
    assert int(sound["port_tx_packets"]) > 0 and sound["duplicates"] != "", sound
    assert (odd["port_tx_packets"], odd["duplicates"], odd["port_difference"]) == ("", "", ""), odd
    assert int(odd["port_rx_packets"]) > 0 and odd["counter_note"], odd


def test_a_lossy_network(folder):
    """Losses and packets out of order: the sums are right, the counters say it, the times are longer."""
    command = [2, "row-allreduce", "--transport", "verbs", "--sizes", "64K", "--ack-timeout", 12, "--min-time", 0.5, "--max-time", 1,
               "--phase", "comm"]
    networks = {"clean": "none", "little": "loss 0.1%", "much": "loss 1%", "mixed": "reorder 5%"}
    lines = []
    for name, network in networks.items():
        run = in_guest(mpiexec_over_two(*command, "--csv", f"{name}.csv"))
        lines.append((name, f"impair {network} && on-second impair {network} && {run}"))
    result = run_in_two_vms(folder, steps(*lines), prepare=RDMA_UP, modules=RDMA, timeout=250)
    assert result.first.code == 0, told(result)
    assert codes(folder) == dict.fromkeys(networks, 0), everything(folder)
    rows = {name: [row for row in assert_all_verified(read_rows(folder / f"{name}.csv")) if "all_reduce" in row["cell_id"]][0]
            for name in networks}
    assert float(rows["much"]["t_mean_us"]) > float(rows["clean"]["t_mean_us"]), rows
    assert int(rows["much"]["retransmits"]) > int(rows["clean"]["retransmits"] or 0), rows["much"]
    assert int(rows["mixed"]["out_of_sequence"]) > 0, rows["mixed"]


def test_what_is_wrong_is_named(folder):
    """One line, exit 2, before anything runs: device, GID, port, limits of this user (C19)."""
    run = lambda *more: weft(2, "tp-allgather", "--sizes", "8", *SHORT, "--csv", "none", *more)   # noqa: E731
    limited = in_guest(mpiexec_command(2, "pairs", "--transport", "verbs,mpi", "--sizes", "8", *SHORT, "--csv", "/tmp/locked.csv"))
    limited_one = in_guest(mpiexec_command(2, "tp-allgather", "--transport", "verbs", "--sizes", "8", *SHORT, "--csv", "none",
                                           prefix=("sh", "/tmp/limit_one")))
    as_user = "chmod 666 /dev/infiniband/*; cd /; HOME=/tmp setpriv --reuid 65534 --clear-groups"
    lines = [
        ("device", run("--transport", "verbs", "--device", "mlx5_7")),
        ("gid", run("--transport", "verbs", "--gid-index", 40)),
        ("mtu", f"ip link set eth0 mtu 1500; {run('--transport', 'verbs', '--path-mtu', 4096)}; code=$?; ip link set eth0 mtu 4200; exit $code"),
        ("queues", run("--transport", "verbs", "--qps", 17)),
        ("latency", run("--transport", "verbs", "--qps", 2, "--signal", "write")),
        ("sport", run("--transport", "verbs", "--udp-sport", 50000)),
        ("locked", f"{as_user} bash -c 'ulimit -l 64; {limited}'; code=$?; cp /tmp/locked.csv {folder}; exit $code"),
        ("alone", f"{as_user} bash -c '{limited_one}'"),
        ("one", f"{as_user} bash -c 'ulimit -l 64; {BUILD}/bin/weft-tp-allgather --list-transports'"),
        ("down", f"ip link set eth0 down; sleep 1; {run('--transport', 'verbs')}"),
        ("gone", f"rdma link delete rxe0; {run('--transport', 'verbs')}"),
    ]
    limit_one = """echo 'test $PMI_RANK = 1 && ulimit -l 64; exec "$@"' >/tmp/limit_one\n"""
    result = in_rdma_vm(folder, limit_one + steps(*lines), timeout=200)
    assert result.code == 0, result.err
    expected = {
        "device": ("'mlx5_7'", "rxe0:1 (ACTIVE)"), "gid": ("--gid-index 40", "rxe0:1", "RoCE v2"), "mtu": ("--path-mtu 4096", "1024"),
        "queues": ("--qps 17", "16"), "latency": ("--signal write", "--qps 1"), "sport": ("--udp-sport", "mlx5"),
        "locked": ("rank 0 on vm0", "RLIMIT_MEMLOCK is 64 kB", "ulimit -l unlimited", "available: mpi"),
        "alone": ("rank 1 on vm0", "RLIMIT_MEMLOCK is 64 kB"), "down": ("rxe0:1 (DOWN)",),
        "gone": ("there is no RDMA device", "available: mpi, shm"),
    }
    for name, words in expected.items():
        lines = [line for line in said(folder, name).splitlines() if line.startswith("weft:")]
        assert codes(folder)[name] == 2 and len(lines) == 1, (name, codes(folder)[name], said(folder, name))
        assert all(word in lines[0] for word in words), (name, lines)
    rows = read_rows(folder / "locked.csv")   # what can be measured is
    assert {row["transport"] for row in rows if row["t_p50_us"]} == {"mpi"}
    assert all("RLIMIT_MEMLOCK" in row["skip_reason"] for row in rows if row["transport"] == "verbs")
    assert codes(folder)["one"] == 0 and "RLIMIT_MEMLOCK is 64 kB" in (folder / "one.out").read_text()


# Messages so long that no machine has enough samples before something happens.
RUN_LONG = ("--transport", "verbs", "--sizes", "1M", "--min-time", 60, "--max-time", 60, "--timeout", 10)


def after_a_row(name, command, then, seconds=5):
    """Starts a run, does something to it while it measures, and waits for its end."""
    return f"""
{command} >{name}.out 2>{name}.err & run=$!
until [ -e {name}.csv.status.json ] || ! kill -0 $run; do sleep 0.2; done
sleep {seconds}
{then}
wait $run
echo $? >{name}.code
"""


def test_a_peer_that_dies(folder):
    """Killed or stopped: the run ends within the deadline and keeps its files. A port that goes down is told."""
    dies = after_a_row("dies", weft(2, "tp-allgather", *RUN_LONG, "--csv", "dies.csv"), "kill -KILL $(pgrep -n -x weft-tp-allgath)")
    stops = after_a_row("stops", weft(2, "tp-allgather", *RUN_LONG, "--csv", "stops.csv"), "kill -STOP $(pgrep -n -x weft-tp-allgath)")
    port = after_a_row("port", weft(2, "tp-allgather", "--transport", "verbs", "--sizes", "1M", "--min-time", 12, "--max-time", 12,
                                    "--csv", "port.csv"), "ip link set eth0 down")
    result = in_rdma_vm(folder, dies + stops + port, timeout=250)
    assert result.code == 0, result.err
    for name in ("dies", "stops"):
        assert codes(folder)[name] != 0, everything(folder)
        assert status_of(folder / f"{name}.csv")["state"] == "incomplete", everything(folder)
    assert codes(folder)["stops"] == 4 and "missing: rank 1 on vm0" in said(folder, "stops"), said(folder, "stops")
    assert "weft: warning: rxe0:1 reported: port error (port 1)" in said(folder, "port"), said(folder, "port")


# Sets l, r and port: of a queue pair that is connected now, its numbers and the UDP port it sends from (small numbers).
ONE_QUEUE_PAIR = """
until read -r l r < <(rdma resource show qp link rxe0 | sed -n 's/.*lqpn \\([0-9]*\\) rqpn \\([0-9]*\\) type RC state RTS.*/\\1 \\2/p' | tail -n 1)
do kill -0 $run || break; sleep 0.3; done
sleep 2
port=$(((((l * r) & 0x3FFF) ^ (((l * r) & 0xFC000) >> 14)) | 0xC000))
echo $l $r $port >pair
"""


def test_one_flow_is_cut(folder):
    """C21: of four queue pairs one is cut off, by its UDP port. Named with both ends, in time; the cells before stay."""
    run = mpiexec_over_two(2, "tp-allgather", "--transport", "verbs", "--qps", 4, "--qp-mode", "split", "--sizes", "64K", "--hot",
                           "--min-time", 60, "--max-time", 60, "--ack-timeout", 13, "--retries", 6, "--timeout", 30, "--csv", "cut.csv")
    script = after_a_row("cut", in_guest(run), f"{ONE_QUEUE_PAIR} on-second impair drop-in $port")
    result = run_in_two_vms(folder, script, prepare=RDMA_UP, modules=RDMA, timeout=200)
    assert result.first.code == 0, told(result)
    text = said(folder, "cut")
    assert codes(folder)["cut"] == 4 and text.count("weft: error:") == 1, text
    local, remote, port = (int(word) for word in (folder / "pair").read_text().split())
    # Both directions leave from this port: data of one is lost there, acknowledgements of the other. Either may be told of first.
    told_of = re.search(r"weft: error: queue pair (0x\w+) of rank (\d) on vm(\d) .* to queue pair (0x\w+) of rank (\d) on vm(\d) ", text)
    ends = ((local, 0, 1), (remote, 1, 2))
    assert told_of and tuple(int(word, 0) for word in told_of.groups()) in (ends[0] + ends[1], ends[1] + ends[0]), text
    assert f"UDP source port {port}" in text and "did not acknowledge" in text and "status 12" in text, text
    assert "no progress for" not in text, text   # it was told long before --timeout
    assert status_of(folder / "cut.csv")["state"] == "incomplete"


def test_a_host_is_cut_off(folder):
    """C21: nothing arrives at one host any more. Both ends are named, in time, and the pairs measured before stay."""
    run = mpiexec_over_two(2, "pairs", "--transport", "verbs", "--qps", 4, "--sizes", "4K", "--hot", "--min-time", 4, "--max-time", 4,
                           "--ack-timeout", 13, "--retries", 6, "--timeout", 30, "--csv", "cut.csv")
    result = run_in_two_vms(folder, after_a_row("cut", in_guest(run), "on-second impair drop-roce", seconds=8), prepare=RDMA_UP, modules=RDMA,
                            timeout=200)
    assert result.first.code == 0, told(result)
    text = said(folder, "cut")
    assert codes(folder)["cut"] == 4 and text.count("weft: error:") == 1, text
    assert re.search(r"queue pair 0x[0-9a-f]+ of rank \d on vm\d .* to queue pair 0x[0-9a-f]+ of rank \d on vm\d .*, UDP source port \d+", text), text
    assert "did not acknowledge" in text and "status 12" in text, text
    assert status_of(folder / "cut.csv")["state"] == "incomplete"
    rows = assert_all_verified(read_rows(folder / "cut.csv"))
    assert rows and all(float(row["t_p50_us"]) > 0 for row in rows)
