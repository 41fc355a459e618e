#include "transports/schedule_builders.hpp"

#include <algorithm>

#include "patterns/partition.hpp"

namespace weft {

Blocks::Blocks(const std::vector<Index>& counts) : parts_(static_cast<int>(counts.size())) {
  offsets_.reserve(counts.size() + 1);
  offsets_.push_back(0);
  for (Index count : counts) offsets_.push_back(offsets_.back() + count);
  total_ = offsets_.back();
}

Blocks Blocks::even(Index total, int parts) { return Blocks(total, parts); }

Index Blocks::offset(int i) const {
  if (!offsets_.empty()) return offsets_[static_cast<std::size_t>(i)];
  return i == parts_ ? total_ : part_of(total_, parts_, i).begin;
}

std::int64_t Blocks::nonzero() const {
  if (offsets_.empty()) return std::min<Index>(total_, parts_);
  std::int64_t n = 0;
  for (int i = 0; i < parts_; ++i) n += count(i) > 0;
  return n;
}

// 32 KiB of f32: a few times the overhead of a message on any wire, and short against a block that
// is worth cutting. All the pieces of a time round a ring may be on their way to a slow member, and
// a wire tells only so many apart (verbs: 2048).
int in_pieces(Index block, int n) {
  constexpr Index kPieceElements = 1 << 13, kMostPieces = 64, kMostAround = 1024;
  const Index wanted = (block + kPieceElements - 1) / kPieceElements;
  const Index most = std::clamp<Index>(kMostAround / n, 1, kMostPieces);
  return static_cast<int>(std::clamp<Index>(wanted, 1, most));
}

void RoundBuilder::copy_before(Place from, Place to, Index elements) {
  if (elements > 0) round_.before.push_back({LocalStep::Kind::copy, from, to, elements});
}

void RoundBuilder::send(int peer, Place from, Place to, Index elements) {
  if (elements > 0) round_.sends.push_back({peer, from, to, elements});
}

void RoundBuilder::copy_meanwhile(Place from, Place to, Index elements) {
  if (elements > 0) round_.meanwhile.push_back({LocalStep::Kind::copy, from, to, elements});
}

void RoundBuilder::receive(int peer, Index elements) {
  if (elements == 0) return;
  if (round_.receives.empty() || round_.receives.back().peer != peer)
    round_.receives.push_back({peer, 0, 0});
  ++round_.receives.back().messages;
  round_.receives.back().elements += elements;
}

void RoundBuilder::copy_after(Place from, Place to, Index elements) {
  if (elements > 0) round_.after.push_back({LocalStep::Kind::copy, from, to, elements});
}

void RoundBuilder::reduce_after(Place from, Place to, Index elements) {
  if (elements > 0) round_.after.push_back({LocalStep::Kind::reduce, from, to, elements});
}

Round LazySchedule::round(int r) const {
  RoundBuilder builder;
  fill_(r, builder);
  return builder.take();
}

Index send_offset(const ScheduleInput& input, int from, int to) {
  Index offset = 0;
  for (int q = 0; q < to; ++q) offset += cell(input, from, q);
  return offset;
}

Index recv_offset(const ScheduleInput& input, int from, int to) {
  Index offset = 0;
  for (int q = 0; q < from; ++q) offset += cell(input, q, to);
  return offset;
}

int members_elsewhere(const ScheduleInput& input, int rank) {
  int n = 0;
  for (int q = 0; q < input.size; ++q) n += !same_host(input, q, rank);
  return n;
}

// sent = sum over q != rank of a[rank][q], received = sum over q != rank of a[q][rank].
TrafficTotals straight_all_to_all(const ScheduleInput& input, int rank) {
  TrafficTotals t;
  for (int q = 0; q < input.size; ++q) {
    if (q == rank) continue;
    const Index out = cell(input, rank, q);
    t.sent += out;
    t.messages_sent += out > 0;
    t.sent_to_other_hosts += same_host(input, q, rank) ? 0 : out;
    t.received += cell(input, q, rank);
  }
  return t;
}

TrafficTotals operator+(TrafficTotals a, const TrafficTotals& b) {
  a.sent += b.sent;
  a.received += b.received;
  a.messages_sent += b.messages_sent;
  a.sent_to_other_hosts += b.sent_to_other_hosts;
  return a;
}

}  // namespace weft
