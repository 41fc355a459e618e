#!/usr/bin/env python3
"""RoCEv2 flows in a capture, as a switch would see them: who, from which port, to which queue pair, and what.

    flows = read_flows("capture.pcap")        # {FlowKey: Flow}
    python3 tests/system/pcap_flows.py CAPTURE...     prints them

Reads pcap files of Ethernet frames, cut ones too (96 bytes of a frame hold all headers). Bytes of a frame are counted as
on the cable, with the check sequence of 4 that a capture leaves out, so they compare with weft's packet sizes.
"""
import collections
import dataclasses
import ipaddress
import pathlib
import struct
import sys

ROCE_PORT = 4791
FRAME_CHECK = 4
UDP, BTH, ICRC = 8, 12, 4
# Opcodes of a reliable connection (InfiniBand specification, table 38): name, extension headers.
RC_OPCODES = {
    0x00: ("send_first", ()), 0x01: ("send_middle", ()), 0x02: ("send_last", ()),
    0x03: ("send_last_immediate", ("immediate",)), 0x04: ("send_only", ()), 0x05: ("send_only_immediate", ("immediate",)),
    0x06: ("write_first", ("reth",)), 0x07: ("write_middle", ()), 0x08: ("write_last", ()),
    0x09: ("write_last_immediate", ("immediate",)), 0x0A: ("write_only", ("reth",)),
    0x0B: ("write_only_immediate", ("reth", "immediate")), 0x0C: ("read_request", ("reth",)),
    0x0D: ("read_response_first", ("aeth",)), 0x0E: ("read_response_middle", ()), 0x0F: ("read_response_last", ("aeth",)),
    0x10: ("read_response_only", ("aeth",)), 0x11: ("ack", ("aeth",)), 0x12: ("atomic_ack", ("aeth", "atomic_ack")),
    0x13: ("compare_swap", ("atomic",)), 0x14: ("fetch_add", ("atomic",)),
    0x16: ("send_last_invalidate", ("invalidate",)), 0x17: ("send_only_invalidate", ("invalidate",)),
    # of unreliable datagrams: two that are used
    0x64: ("ud_send_only", ("deth",)), 0x65: ("ud_send_only_immediate", ("deth", "immediate")),
}
EXTENSION_BYTES = {"reth": 16, "immediate": 4, "aeth": 4, "atomic": 28, "atomic_ack": 8, "invalidate": 4, "deth": 8}
NAK_NAMES = ("sequence_error", "invalid_request", "remote_access_error", "remote_operational_error", "invalid_rd_request")
ANSWERS = {"ack", "nak", "rnr_nak", "atomic_ack"}
PSN_BITS = 24


@dataclasses.dataclass(frozen=True, order=True)
class FlowKey:
    """Destination port and protocol are the same for all: 4791, UDP."""

    source: str
    destination: str
    sport: int
    dest_qp: int


@dataclasses.dataclass
class Flow:
    """What passed under one key, one direction. Packets whose PSN was there before are counted apart, as `retransmitted`.

    A packet that was lost before it came to the capture is in it once: `late`, if others had passed it. A READ request that
    is sent again from its middle has a PSN that was not seen as a request's, and is `late` too.
    """

    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)   # opcode's name -> all its packets
    payload: int = 0   # bytes that a program sent, each once
    frames: collections.Counter = dataclasses.field(default_factory=collections.Counter)   # bytes -> packets, data and requests
    answer_frames: collections.Counter = dataclasses.field(default_factory=collections.Counter)   # likewise: acks, naks
    retransmitted: int = 0   # packets of data and requests
    retransmitted_payload: int = 0
    retransmitted_frames: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    late: int = 0   # packets not seen before whose PSN is below another's: reordered, or lost before the capture
    naks: collections.Counter = dataclasses.field(default_factory=collections.Counter)   # "rnr", NAK_NAMES -> packets
    first_s: float = 0.0   # capture's clock
    last_s: float = 0.0

    @property
    def packets(self):
        """Of data and requests, each once."""
        return sum(self.frames.values())

    @property
    def answers(self):
        return sum(self.answer_frames.values())


@dataclasses.dataclass(frozen=True)
class Packet:
    key: FlowKey
    kind: str
    psn: int
    payload: int
    frame: int
    nak: str   # its name; empty for others
    seconds: float


class PsnHistory:
    """Packet sequence numbers of one requester or responder: 24 bits that wrap."""

    def __init__(self):
        self.seen, self.highest = set(), None

    def add(self, psn):
        """'new', 'again', or 'late': not seen, but a higher one was."""
        if self.highest is None:
            self.highest = psn
        half = 1 << (PSN_BITS - 1)
        full = self.highest + (psn - self.highest + half) % (1 << PSN_BITS) - half
        if full in self.seen:
            return "again"
        self.seen.add(full)
        if full < self.highest:
            return "late"
        self.highest = full
        return "new"


def read_flows(path):
    """Flows of a capture, those with the most payload first. ValueError where the file is none, or cut too short."""
    flows, histories = {}, {}
    for packet in read_packets(path):
        flow = flows.setdefault(packet.key, Flow(first_s=packet.seconds))
        flow.last_s = packet.seconds
        flow.kinds[packet.kind] += 1
        if packet.nak:
            flow.naks[packet.nak] += 1
        if packet.kind in ANSWERS:
            flow.answer_frames[packet.frame] += 1
            continue
        # What answers a READ is numbered by its requester, apart from this side's own requests.
        history = histories.setdefault((packet.key, packet.kind.startswith("read_response")), PsnHistory())
        add_data(flow, packet, history.add(packet.psn))
    return dict(sorted(flows.items(), key=lambda item: (-item[1].payload, item[0])))


def add_data(flow, packet, order):
    if order == "again":
        flow.retransmitted += 1
        flow.retransmitted_payload += packet.payload
        flow.retransmitted_frames[packet.frame] += 1
        return
    flow.late += order == "late"
    flow.payload += packet.payload
    flow.frames[packet.frame] += 1


def read_packets(path):
    """The RoCEv2 packets of a capture in its order; others are passed over, and so is a record that was still being written."""
    data = pathlib.Path(path).read_bytes()
    order, ticks = file_format(path, data)
    at = 24
    while at + 16 <= len(data):
        seconds, fraction, kept, length = struct.unpack_from(order + "IIII", data, at)
        frame = data[at + 16:at + 16 + kept]
        at += 16 + kept
        if at > len(data):
            return
        try:
            packet = parse_frame(frame, length, seconds + fraction / ticks)
        except (struct.error, IndexError):
            raise ValueError(f"{path}: {kept} bytes of a frame are kept; RoCEv2 needs 96 (filter-dump: maxlen=96)") from None
        if packet:
            yield packet


def file_format(path, data):
    """Byte order and clock ticks a second."""
    for order in "<>":
        if len(data) >= 24:
            magic, link_type = struct.unpack_from(order + "I16xI", data)
            if magic in (0xA1B2C3D4, 0xA1B23C4D) and link_type & 0xFFFF == 1:
                return order, 1e6 if magic == 0xA1B2C3D4 else 1e9
    raise ValueError(f"{path}: not a pcap file of Ethernet frames (pcapng: convert it by editcap -F pcap)")


def parse_frame(frame, length, seconds):
    """The Packet in a frame, or None where it is no RoCEv2."""
    at, ether_type = 14, frame[12:14]
    while ether_type in (b"\x81\x00", b"\x88\xa8"):   # VLAN
        ether_type, at = frame[at + 2:at + 4], at + 4
    addresses = None
    if ether_type == b"\x08\x00" and frame[at + 9] == 17:
        addresses = frame[at + 12:at + 16], frame[at + 16:at + 20]
        at += (frame[at] & 15) * 4
    elif ether_type == b"\x86\xdd" and frame[at + 6] == 17:
        addresses = frame[at + 8:at + 24], frame[at + 24:at + 40]
        at += 40
    if addresses is None:
        return None
    sport, dport, udp_bytes = struct.unpack_from(">HHH", frame, at)
    if dport != ROCE_PORT:
        return None
    source, destination = (str(ipaddress.ip_address(address)) for address in addresses)
    opcode, flags, _, qp, psn = struct.unpack_from(">BBHII", frame, at + UDP)
    kind, extensions = RC_OPCODES.get(opcode, (f"opcode_{opcode:#04x}", ()))
    nak = ""
    if kind == "ack":
        kind, nak = answer_kind(frame[at + UDP + BTH])
    headers = UDP + BTH + sum(EXTENSION_BYTES[name] for name in extensions)
    payload = udp_bytes - headers - ICRC - (flags >> 4 & 3)   # flags: 2 bits of pad count
    mask = (1 << PSN_BITS) - 1
    return Packet(FlowKey(source, destination, sport, qp & mask), kind, psn & mask, payload, length + FRAME_CHECK, nak, seconds)


def answer_kind(syndrome):
    """(kind, name of the nak) by bits 5 and 6 of an AETH."""
    kind, value = syndrome >> 5 & 3, syndrome & 31
    if kind == 0:
        return "ack", ""
    if kind == 1:
        return "rnr_nak", "rnr"
    return "nak", NAK_NAMES[value] if value < len(NAK_NAMES) else f"code_{value}"


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        for key, flow in read_flows(path).items():
            print(f"{key.source} -> {key.destination} sport {key.sport:#x} qp {key.dest_qp:#x}: payload {flow.payload}, "
                  f"packets {flow.packets}, retransmitted {flow.retransmitted}, late {flow.late}, answers {flow.answers}")
            counts = [*sorted(flow.kinds.items()), *((f"nak:{name}", count) for name, count in sorted(flow.naks.items()))]
            print("    " + ", ".join(f"{name} {count}" for name, count in counts))
            print("    frames " + (" + ".join(f"{size} x {count}" for size, count in sorted(flow.frames.items())) or "none"))


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        print(f"pcap_flows.py: {error}", file=sys.stderr)
        sys.exit(2)
