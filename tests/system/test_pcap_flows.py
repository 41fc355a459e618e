# label: unit
"""The reader of captures, on captures whose every byte is known."""
import ipaddress
import struct

import pytest

from pcap_flows import FlowKey, read_flows

FORWARD = FlowKey("10.0.2.11", "10.0.2.12", 0xC121, 0x12)
BACK = FlowKey("10.0.2.12", "10.0.2.11", 0xC121, 0x11)
RETH, AETH, IMMEDIATE = bytes(16), bytes(4), bytes(4)


def roce(key, opcode, psn, headers=b"", payload=0, vlan=False):
    """An Ethernet frame; UDP's length counts headers, padded payload and the check of 4."""
    pad = -payload % 4
    base = struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, key.dest_qp, psn | 1 << 31)   # the top bit asks for an ack
    body = base + headers + bytes(payload + pad) + bytes(4)
    udp = struct.pack(">HHHH", key.sport, 4791, 8 + len(body), 0) + body
    source, destination = (ipaddress.ip_address(address).packed for address in (key.source, key.destination))
    if len(source) == 4:
        ether_type, ip = 0x0800, struct.pack(">BBHIBBH", 0x45, 0, 20 + len(udp), 0, 64, 17, 0) + source + destination
    else:
        ether_type, ip = 0x86DD, struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + source + destination
    return bytes(12) + (b"\x81\x00\x00\x05" if vlan else b"") + struct.pack(">H", ether_type) + ip + udp


def capture(path, frames, *, order="<", magic=0xA1B2C3D4, kept=96, link_type=1):
    """One frame each 0.5 s of the capture's clock, from second 100."""
    second = 1_000_000 if magic == 0xA1B2C3D4 else 1_000_000_000
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, kept, link_type)
    for number, frame in enumerate(frames):
        data += struct.pack(order + "IIII", 100 + number // 2, number % 2 * second // 2, min(kept, len(frame)), len(frame))
        data += frame[:kept]
    path.write_bytes(data)
    return path


def test_messages_and_acknowledgements(folder):
    """A write of three packets with an immediate, a padded one, a send, their acks: counts, bytes, frame sizes, times."""
    flows = read_flows(capture(folder / "a.pcap", [
        roce(FORWARD, 0x06, 10, RETH, 1024), roce(FORWARD, 0x07, 11, b"", 1024), roce(FORWARD, 0x09, 12, IMMEDIATE, 500),
        roce(BACK, 0x11, 12, AETH),
        roce(FORWARD, 0x0B, 13, RETH + IMMEDIATE, 5), roce(FORWARD, 0x04, 14, b"", 0),
        roce(BACK, 0x11, 14, AETH), b"\0" * 60]))
    assert list(flows) == [FORWARD, BACK]
    data = flows[FORWARD]
    assert data.kinds == {"write_first": 1, "write_middle": 1, "write_last_immediate": 1, "write_only_immediate": 1, "send_only": 1}
    assert data.payload == 1024 + 1024 + 500 + 5
    assert data.frames == {62 + 16 + 1024: 1, 62 + 1024: 1, 62 + 4 + 500: 1, 62 + 16 + 4 + 8: 1, 62: 1}
    assert (data.packets, data.answers, data.retransmitted, data.late) == (5, 0, 0, 0)
    assert (data.first_s, data.last_s) == (100, 102.5)
    assert flows[BACK].kinds == {"ack": 2} and flows[BACK].answer_frames == {66: 2} and flows[BACK].payload == 0


def test_retransmissions_and_naks(folder):
    """The PSN wraps; 0 is lost before the capture, refused, and sent again with 1, which was there."""
    flows = read_flows(capture(folder / "a.pcap", [
        roce(FORWARD, 0x0A, 0xFFFFFF, RETH, 8), roce(FORWARD, 0x0A, 1, RETH, 16), roce(BACK, 0x11, 0, b"\x60\0\0\0"),
        roce(FORWARD, 0x0A, 0, RETH, 32), roce(FORWARD, 0x0A, 1, RETH, 16), roce(BACK, 0x11, 1, b"\x21\0\0\0"),
        roce(FORWARD, 0x0A, 1, RETH, 16), roce(BACK, 0x11, 1, b"\x62\0\0\0"), roce(BACK, 0x11, 1, b"\x1f\0\0\0")]))
    data, back = flows[FORWARD], flows[BACK]
    assert (data.payload, data.packets, data.late) == (8 + 16 + 32, 3, 1)
    assert (data.retransmitted, data.retransmitted_payload, data.retransmitted_frames) == (2, 32, {62 + 16 + 16: 2})
    assert data.kinds == {"write_only": 5}
    assert back.naks == {"sequence_error": 1, "rnr": 1, "remote_access_error": 1}
    assert back.kinds == {"nak": 2, "rnr_nak": 1, "ack": 1} and back.answers == 4


def test_reads_are_numbered_by_their_requester(folder):
    """Responses carry the PSN of the other side's request: no retransmissions of this side's own."""
    flows = read_flows(capture(folder / "a.pcap", [
        roce(BACK, 0x0C, 7, RETH), roce(FORWARD, 0x0A, 7, RETH, 4), roce(FORWARD, 0x0D, 7, AETH, 1024),
        roce(FORWARD, 0x0F, 8, AETH, 100), roce(FORWARD, 0x10, 7, AETH, 12)]))
    assert flows[BACK].kinds == {"read_request": 1} and flows[BACK].frames == {62 + 16: 1} and flows[BACK].payload == 0
    data = flows[FORWARD]
    assert data.payload == 4 + 1024 + 100 and data.retransmitted == 1 and data.retransmitted_payload == 12
    assert data.kinds == {"write_only": 1, "read_response_first": 1, "read_response_last": 1, "read_response_only": 1}


def test_other_formats_of_a_capture(folder):
    """Big-endian with nanoseconds; a VLAN; IPv6; a record that is still being written."""
    six = FlowKey("fe80::1", "fe80::2", 0xFFFF, 0xFFFFFF)
    path = capture(folder / "a.pcap", [roce(FORWARD, 0x0A, 1, RETH, 64, vlan=True), roce(six, 0x0A, 1, RETH, 64)],
                   order=">", magic=0xA1B23C4D)
    path.write_bytes(path.read_bytes() + struct.pack(">IIII", 102, 0, 96, 96) + bytes(40))
    flows = read_flows(path)
    assert flows[FORWARD].frames == {62 + 4 + 16 + 64: 1} and flows[six].frames == {62 + 20 + 16 + 64: 1}
    assert flows[six].first_s == 100.5 and set(flows) == {FORWARD, six}


@pytest.mark.parametrize("how, words", [({"link_type": 113}, "not a pcap file of Ethernet"), ({"magic": 0x0A0D0D0A}, "pcapng"),
                                        ({"kept": 50}, "RoCEv2 needs 96")])
def test_what_is_no_such_capture_is_refused(folder, how, words):
    path = capture(folder / "a.pcap", [roce(FORWARD, 0x0A, 1, RETH, 64)], **how)
    with pytest.raises(ValueError, match=words):
        read_flows(path)
