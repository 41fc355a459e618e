// RoCEv2 as a switch sees it: what makes the 5-tuple of a queue pair's packets.
#pragma once

#include <cstdint>

namespace weft {

inline constexpr std::uint16_t kRocePort = 4791;  // UDP destination port

/// UDP source port of what one queue pair sends to another, both numbers of 24 bits. With a flow
/// label (20 bits): port = ((label & 0x3FFF) ^ (label >> 14)) | 0xC000. Without one (0) drivers
/// that follow the kernel's rule (rxe, mlx5) make a label of v = local*remote; v ^= v>>20;
/// v ^= v>>40; label = v & 0xFFFFF.
std::uint16_t roce_source_port(std::uint32_t local_queue_pair, std::uint32_t remote_queue_pair,
                               std::uint32_t flow_label = 0);

}  // namespace weft
