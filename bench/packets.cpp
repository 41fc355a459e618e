#include "bench/packets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace weft {
namespace {

constexpr Bytes kEthernet = 14 + 4;
constexpr Bytes kIpv4 = 20;
constexpr Bytes kUdp = 8;
constexpr Bytes kBth = 12;
constexpr Bytes kReth = 16;
constexpr Bytes kAeth = 4;
constexpr Bytes kImmediate = 4;
constexpr Bytes kIcrc = 4;
constexpr Bytes kEveryFrame = kEthernet + kIpv4 + kUdp + kBth + kIcrc;
static_assert(kEveryFrame == 62, "an RDMA frame without its payload and extension headers");
constexpr Bytes kAcknowledgement = kEveryFrame + kAeth;
static_assert(kAcknowledgement == 66, "above the 64 bytes that Ethernet pads to");
constexpr Bytes kAroundFrame = 8 + 12;

Bytes frame_of(Bytes payload) { return kEveryFrame + (payload + 3) / 4 * 4; }

/// Frames of `times` messages of one size.
void add_frames(SizeHistogram& frames, Bytes message, Bytes mtu, std::int64_t times) {
  if (message <= 0 || mtu <= 0) return;
  const std::int64_t count = (message + mtu - 1) / mtu;
  const Bytes last_payload = message - (count - 1) * mtu;
  if (count == 1) {
    frames.add(frame_of(last_payload) + kReth + kImmediate, times);
    return;
  }
  frames.add(frame_of(mtu) + kReth, times);
  frames.add(frame_of(mtu), (count - 2) * times);
  frames.add(frame_of(last_payload) + kImmediate, times);
}

}  // namespace

Packets packets_of(Bytes message, Bytes mtu) {
  SizeHistogram frames;
  add_frames(frames, message, mtu, 1);
  return {frames.count(), frames.max(), frames.percentile(0.5), frames.total()};
}

PacketHistogram packets_of(const SizeHistogram& messages, Bytes mtu) {
  PacketHistogram packets;
  for (const auto& [size, count] : messages.counts()) {
    add_frames(packets.data, size, mtu, count);
    if (size > 0) packets.acks.add(kAcknowledgement, count);
  }
  return packets;
}

Bytes link_bytes(const SizeHistogram& frames) {
  return frames.total() + frames.count() * kAroundFrame;
}

std::string payload_text(const SizeHistogram& messages, Bytes mtu, std::size_t shown) {
  SizeHistogram payloads;
  for (const auto& [size, count] : messages.counts()) {
    payloads.add(mtu, size / mtu * count);
    if (size % mtu > 0) payloads.add(size % mtu, count);
  }
  std::vector<std::string> parts;
  for (auto at = payloads.counts().rbegin(); at != payloads.counts().rend(); ++at) {
    if (parts.size() < shown) parts.push_back(fmt::format("{} x {}", at->first, at->second));
  }
  if (const std::size_t kinds = payloads.counts().size(); kinds > shown)
    parts.push_back(fmt::format("+{} sizes", kinds - shown));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string histogram_text(const PacketHistogram& packets, std::size_t shown) {
  SizeHistogram all = packets.data;
  all.merge(packets.acks);
  std::vector<std::pair<Bytes, std::int64_t>> kinds(all.counts().begin(), all.counts().end());
  std::int64_t others = 0;
  if (kinds.size() > shown) {
    std::ranges::stable_sort(kinds, std::greater{}, [](const auto& kind) { return kind.second; });
    for (std::size_t i = shown; i < kinds.size(); ++i) others += kinds[i].second;
    kinds.resize(shown);
    std::ranges::sort(kinds);
  }
  std::vector<std::string> parts;
  for (const auto& [size, count] : kinds) parts.push_back(fmt::format("{} x {}", size, count));
  if (others > 0) parts.push_back(fmt::format("other x {}", others));
  return fmt::format("{}", fmt::join(parts, " + "));
}

}  // namespace weft
