# label: mpi
"""Port counters in the rows, from a made-up /sys/class/infiniband in a mount namespace of its own: odd files leave columns blank
and say why, the run goes on; what rises while a cell is measured is in its row and in the report. And link speeds that are none."""
import contextlib
import math
import os
import shutil
import subprocess
import threading
import time

import pytest

from harness import PATTERNS, QUICK, assert_all_verified, mpiexec, mpiexec_command, read_rows, run

COUNTED = ("retransmits", "out_of_sequence", "rnr_naks", "duplicates", "ecn_marked", "cnp", "discards", "pauses", "port_tx_bytes",
           "port_rx_bytes", "port_tx_packets", "port_rx_packets")
CHECKED = ("port_tx_expected_bytes", "port_tx_expected_packets", "port_difference")


@contextlib.contextmanager
def made_up_port(files):
    """Words before a command that run it with one active port rxe0:1 that has these files, and a function that sets one of them."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("unshare and nsenter (package util-linux) are needed for a /sys/class of one's own")
    script = ("mount --make-rprivate / && mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/rxe0/ports/1/counters "
              "/sys/class/infiniband/rxe0/ports/1/hw_counters && echo ready && exec cat")
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no mounts of one's own here: {holder.stderr.read().strip()}")
        port = f"/proc/{holder.pid}/root/sys/class/infiniband/rxe0/ports/1"

        def put(name, text):
            with open(f"{port}/{name}", "r+" if os.path.exists(f"{port}/{name}") else "w", encoding="ascii") as file:
                file.write(text)   # over the old number, which is no longer: a reader never finds it empty

        for name, text in {"state": "4: ACTIVE\n", **files}.items():
            put(name, text)
        yield ["nsenter", "-t", str(holder.pid), "-m", "--wd=" + os.getcwd()], put
    finally:
        holder.stdin.close()
        holder.wait(5)
        holder.stdout.close()
        holder.stderr.close()


def test_odd_files_leave_columns_blank_and_say_why(folder):
    odd = {"counters/port_xmit_data": "N/A (no PMA)\n", "counters/port_rcv_data": "", "counters/port_xmit_packets": "4294967295\n",
           "counters/port_rcv_packets": "77\n", "counters/port_xmit_wait": "-1\n", "hw_counters/out_of_seq_request": "5\n"}
    csv = folder / "r.csv"
    with made_up_port(odd) as (enter, _):
        result = run([*enter, *mpiexec_command(2, "tp-allgather", "--transport", "mpi,shm", *QUICK, "--csv", csv)])
    assert result.code == 0, result
    for row in assert_all_verified(read_rows(csv)):
        if row["transport"] == "shm" or row["phase"] == "compute":
            assert not any(row[column] for column in COUNTED + CHECKED + ("port_source", "port_iterations")) and row["counter_note"], row
            continue
        assert row["port_source"].startswith("rxe0:1 counters+hw_counters") and int(row["port_iterations"]) >= int(row["n"]) > 0
        for column in ("port_tx_bytes", "port_rx_bytes", "port_tx_packets", "pauses", "cnp", "rnr_naks"):
            assert row[column] == "", (column, row[column])
        assert (row["port_rx_packets"], row["out_of_sequence"]) == ("0", "0"), "readable, and nothing came"
        assert "port_xmit_data says 'N/A (no PMA)'" in row["counter_note"], row["counter_note"]
        assert not any(row[column] for column in CHECKED), "nobody knows which port a library's bytes take"


def test_what_is_sent_again_is_told(folder):
    csv = folder / "r.csv"
    with made_up_port({"hw_counters/completer_retry_err": "1000000", "hw_counters/sent_pkts": "1000000"}) as (enter, put):
        done = threading.Event()

        def lose():
            for count in range(1000001, 9999999):
                if done.is_set():
                    return
                put("hw_counters/completer_retry_err", str(count))
                time.sleep(0.002)

        loser = threading.Thread(target=lose)
        loser.start()
        try:
            result = run([*enter, *mpiexec_command(2, "tp-allgather", "--transport", "mpi,shm", "--sizes", "4K", "--min-time", "0.2",
                                                   "--max-time", "0.3", "--csv", csv)])
        finally:
            done.set()
            loser.join()
    assert result.code == 0, result
    rows = {row["transport"]: row for row in assert_all_verified(read_rows(csv))}
    assert int(rows["mpi"]["retransmits"]) > 0 and rows["mpi"]["port_tx_packets"] == "0", rows["mpi"]
    assert rows["shm"]["retransmits"] == ""
    assert "sent again or dropped in 1 of 2 cells, and their times include that" in " ".join(result.out.split()), result


def test_without_ports_only_tcp_is_counted(folder):
    """On this machine; and a port that vanishes while it is measured stops nothing."""
    if os.path.isdir("/sys/class/infiniband"):
        pytest.skip("this machine has RDMA devices of its own")
    csv = folder / "r.csv"
    result = mpiexec(2, "tp-allgather", "--transport", "mpi", "--sizes", "4K", *QUICK[:4], "--csv", csv)
    assert result.code == 0, result
    (row,) = assert_all_verified(read_rows(csv))
    assert row["port_source"] == "/proc/net/snmp" and row["counter_note"] == "no active RDMA port"
    assert int(row["retransmits"]) >= 0 and int(row["discards"]) >= 0
    assert not any(row[column] for column in COUNTED if column not in ("retransmits", "discards"))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_link_use_is_a_share_or_blank(folder, pattern):
    """Whatever this machine's interfaces say of their speed: virtual hosts have no link of their own unless --link-rate gives one."""
    csv = folder / "r.csv"
    result = mpiexec(2, pattern, "--transport", "shm", *QUICK, "--phase", "comm", "--ranks-per-host", 1, "--csv", csv)
    assert result.code == 0, result
    for row in assert_all_verified(read_rows(csv)):
        assert (row["link_util"], row["link_util_scale_out"], row["link_rate_source"]) == ("", "", ""), row
    csv.unlink()
    result = mpiexec(2, pattern, "--transport", "shm", *QUICK, "--phase", "comm", "--ranks-per-host", 1, "--link-rate", "1e6", "--csv", csv)
    assert result.code == 0, result
    for row in assert_all_verified(read_rows(csv)):
        share = float(row["link_util_scale_out"] or math.nan)
        assert not row["bytes_wire"] or row["bytes_wire"] == "0" or 0 < share <= 1, row
        assert math.isnan(share) or "--link-rate 1e+06 Gbit/s" in row["link_rate_source"], row["link_rate_source"]
