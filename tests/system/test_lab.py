# label: slow
"""The lab itself: two virtual machines on one cable, MPI and RDMA between them, what a capture says, and a bad network."""
import shutil

import pytest

from harness import assert_all_verified, read_rows
from pcap_flows import FlowKey, read_flows
from vm_lab import RDMA, RDMA_UP, in_guest, mpiexec_over_two, run_in_two_vms, told

FIRST, SECOND = "10.0.2.11", "10.0.2.12"
MTU, FRAME = 4096, 62   # bytes of a frame besides its payload: bench/packets.hpp
MESSAGES, MESSAGE = 100, 4 * MTU
FIRST_QP = 0x11   # what a guest's first queue pair is numbered; the next ones follow
# write NAME [SECONDS]: MESSAGES writes to the second guest, its words in NAME.out, the exit code in NAME.code
WRITE = f"""
write() {{
  on-second timeout 60 ib_write_bw -d rxe0 -n {MESSAGES} -s {MESSAGE} -u 14 >server.$1 2>&1 &
  on-second await-listener 18515
  timeout ${{2-60}} ib_write_bw -d rxe0 -n {MESSAGES} -s {MESSAGE} -u 14 {SECOND} >$1.out 2>&1 </dev/null
  echo $? >$1.code
  on-second pkill ib_write_bw
  wait
}}
"""


def source_port(qp):
    """UDP source port of a queue pair that is connected to one of the same number."""
    label = qp * qp
    label ^= label >> 20
    return (label & 0x3FFF ^ (label & 0xFC000) >> 14) | 0xC000


def flows_of(path, qp):
    """Data, and what is answered."""
    flows = read_flows(path)
    port = source_port(qp)
    return flows[FlowKey(FIRST, SECOND, port, qp)], flows.get(FlowKey(SECOND, FIRST, port, qp))


def test_mpi_over_two_machines(folder):
    """Ranks on two kernels, which share nothing but the network."""
    command = mpiexec_over_two(2, "tp-allgather", "--tp", 2, "--transport", "mpi", "--sizes", "8,4K", "--min-time", 0, "--max-time", 0.1,
                               "--csv", "o.csv")
    result = run_in_two_vms(folder, f"timeout -k 5 100 {in_guest(command)}", timeout=150)
    assert result.first.code == 0, told(result)
    rows = assert_all_verified(read_rows(folder / "o.csv"))
    assert {row["size"] for row in rows} == {"8", "4096"}
    assert {(row["hosts"], row["host_names"]) for row in rows} == {("2", "vm1 vm2")}


def test_rdma_between_two_machines(folder):
    """What moves is what the capture has, packet by packet; then with losses; then with one flow that never arrives."""
    if not shutil.which("ib_write_bw"):
        pytest.skip("no ib_write_bw (package perftest)")
    lost_port = source_port(FIRST_QP + 2)
    result = run_in_two_vms(folder, f"""{WRITE}
write clean
impair loss 3%
write loss
impair none
on-second impair drop-in {lost_port}
write dropped 5
on-second impair none
write healed
""", prepare=RDMA_UP, modules=RDMA, timeout=200)
    shown = told(result) + "".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.out")))
    assert result.first.code == 0, shown
    codes = {path.stem: int(path.read_text()) for path in folder.glob("*.code")}
    assert codes == {"clean": 0, "loss": 0, "dropped": 124, "healed": 0}, shown

    for qp in (FIRST_QP, FIRST_QP + 3):
        check_clean(result.captures, qp)
    data, _ = flows_of(result.captures[0], FIRST_QP + 1)
    assert data.payload == MESSAGES * MESSAGE and data.packets == MESSAGES * MESSAGE // MTU
    assert data.retransmitted > 0 and data.late > 0, data
    data, answers = flows_of(result.captures[0], FIRST_QP + 2)
    assert data.retransmitted > 0 and answers is None, (data, answers)


def check_clean(captures, qp):
    """Each message is 4 packets, each packet passed once, and both ends saw the same."""
    data, answers = flows_of(captures[0], qp)
    assert data.payload == MESSAGES * MESSAGE
    assert (data.retransmitted, data.late, data.naks, answers.naks) == (0, 0, {}, {})
    assert data.kinds == {"write_first": MESSAGES, "write_middle": 2 * MESSAGES, "write_last": MESSAGES}
    assert data.frames == {FRAME + MTU + 16: MESSAGES, FRAME + MTU: 3 * MESSAGES}
    assert set(answers.answer_frames) == {FRAME + 4} and 1 <= answers.answers <= MESSAGES
    seen, answered = flows_of(captures[1], qp)
    assert (seen.kinds, answered.kinds) == (data.kinds, answers.kinds)


def test_a_guest_that_fails_ends_both(folder):
    """Neither waits for the other until the deadline."""
    result = run_in_two_vms(folder, "sleep 300", second="echo gone >&2; exit 3", timeout=200)
    assert result.why == "vm2 ended with exit code 3"
    assert (result.first.code, result.second.code) == (None, 3)
    assert result.second.err == "gone\n" and result.second.seconds < 100
