// Packets that messages make at a path MTU: frames as on an Ethernet cable, as an RDMA WRITE WITH
// IMMEDIATE of RoCEv2 over IPv4, the operation that a message of any wire is taken for.
//
// Bytes of a frame: Ethernet 14+4, IPv4 20, UDP 8, BTH 12, payload padded to 4, ICRC 4; RETH 16 on
// the first of a message, immediate 4 on the last. An acknowledgement has AETH 4 and no payload;
// one a message is counted, the fewest that a reliable connection sends.
#pragma once

#include <string>

#include "transports/size_histogram.hpp"

namespace weft {

/// Of one message; without preamble and gap.
struct Packets {
  std::int64_t count = 0;
  Bytes largest = 0, median = 0;  // frame bytes
  Bytes wire_bytes = 0;           // all frames
};
/// All 0 for a message or an MTU of no bytes.
Packets packets_of(Bytes message, Bytes mtu);

/// Frame sizes of many messages.
struct PacketHistogram {
  SizeHistogram data;  // from the sender
  SizeHistogram acks;  // back to it
};
PacketHistogram packets_of(const SizeHistogram& messages, Bytes mtu);

/// What frames take of a link's time, in bytes: preamble 8 and gap 12 around each.
Bytes link_bytes(const SizeHistogram& frames);

/// Payload sizes of the packets, largest first, as "4096 x 512, 64 x 3"; of more than `shown` sizes
/// the rest is counted.
std::string payload_text(const SizeHistogram& messages, Bytes mtu, std::size_t shown);

/// "66 x 12 + 86 x 4 + 4174 x 8": both directions, by frame size. Of more than `shown` sizes, those
/// with the fewest packets are put together as "other x N".
std::string histogram_text(const PacketHistogram& packets, std::size_t shown);

}  // namespace weft
