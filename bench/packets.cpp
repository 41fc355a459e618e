// Frames of a RoCEv2 RDMA WRITE WITH IMMEDIATE, the operation a message of any wire is taken for.
#include <algorithm>
#include <utility>
#include <vector>

#include "bench/traffic_sheet.hpp"

namespace weft {
namespace {

constexpr Bytes kEthernet = 14 + 4;
constexpr Bytes kIpv4 = 20;
constexpr Bytes kUdp = 8;
constexpr Bytes kBth = 12;
constexpr Bytes kReth = 16;
constexpr Bytes kImmediate = 4;
constexpr Bytes kIcrc = 4;
constexpr Bytes kEveryFrame = kEthernet + kIpv4 + kUdp + kBth + kIcrc;
static_assert(kEveryFrame == 62, "an RDMA frame without its payload and extension headers");

Bytes frame_of(Bytes payload) { return kEveryFrame + (payload + 3) / 4 * 4; }

}  // namespace

Packets packets_of(Bytes message, Bytes mtu) {
  Packets packets;
  if (message <= 0 || mtu <= 0) return packets;
  packets.count = (message + mtu - 1) / mtu;
  const Bytes last_payload = message - (packets.count - 1) * mtu;
  using Kind = std::pair<Bytes, std::int64_t>;  // frame bytes, how many
  std::vector<Kind> kinds;
  if (packets.count == 1) {
    kinds = {{frame_of(last_payload) + kReth + kImmediate, 1}};
  } else {
    kinds = {{frame_of(mtu) + kReth, 1},
             {frame_of(mtu), packets.count - 2},
             {frame_of(last_payload) + kImmediate, 1}};
  }
  std::sort(kinds.begin(), kinds.end());
  std::int64_t seen = 0;
  for (const auto& [bytes, count] : kinds) {
    packets.wire_bytes += bytes * count;
    if (count > 0) packets.largest = bytes;
    const std::int64_t middle = (packets.count + 1) / 2;  // the lower one of two
    if (seen < middle && middle <= seen + count) packets.median = bytes;
    seen += count;
  }
  return packets;
}

}  // namespace weft
