// What the recursive schedules share. Rounds go over partners at distance 1, 2, 4, ... Groups that
// are no power of two are folded: the first 2e members (e = n - p, p the largest power of two in n)
// form pairs, whose odd member hands its data to the even one (fold), waits, and is given the
// result (unfold). Private to schedule_recursive.cpp and schedule_halving.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "transports/schedule_builders.hpp"

namespace weft {

/// The p members that take part between fold and unfold are the core. Core member v holds the
/// blocks of its pair, or its own: [first(v), first(v + 1)), so that neighbours in the core hold
/// neighbouring blocks.
struct Fold {
  explicit Fold(int n)
      : p(static_cast<int>(std::bit_floor(static_cast<unsigned>(n)))), extra(n - p) {}
  int p, extra;

  int steps() const { return std::countr_zero(static_cast<unsigned>(p)); }
  bool folded() const { return extra > 0; }
  int first(int v) const { return v + std::min(v, extra); }
  int rank_of(int v) const { return first(v); }
  bool paired(int v) const { return v < extra; }
  bool idle(int rank) const { return rank < 2 * extra && rank % 2 == 1; }
  int core_of(int rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }
};

/// The aligned group of `width` core members around v.
struct Span {
  Span(int v, int width) : begin(v / width * width), end(begin + width) {}
  int begin, end;
};

/// Where a round stands: in the fold (-1), in step 0.. of the core, in the unfold (steps()).
inline int step_of(const Fold& fold, int r) { return fold.folded() ? r - 1 : r; }
inline int rounds_of(const Fold& fold, int steps) { return steps + (fold.folded() ? 2 : 0); }

inline Blocks core_blocks(const Fold& fold, const Blocks& blocks) {
  std::vector<Index> counts;
  for (int v = 0; v < fold.p; ++v) counts.push_back(blocks.span(fold.first(v), fold.first(v + 1)));
  return Blocks(counts);
}

/// Step j of doubling: the group of 2^j around v holds its blocks in out; the partner's group gets
/// them.
inline void doubling_step(const Fold& fold, const Blocks& core, int v, int j, RoundBuilder& round) {
  const int width = 1 << j, partner = v ^ width;
  const Span mine(v, width), theirs(partner, width);
  const Place place = out_at(core.offset(mine.begin));
  round.send(fold.rank_of(partner), place, place, core.span(mine.begin, mine.end));
  round.receive(fold.rank_of(partner), core.span(theirs.begin, theirs.end));
}

/// Elements sent in the core, and the messages and other-host share of them, when step j sends
/// sizes(j) to v ^ 2^j in pieces(sizes(j), p) messages.
template <class Sizes>
TrafficTotals core_traffic(const ScheduleInput& input, const Fold& fold, int v, const Sizes& sizes,
                           int (*pieces)(Index, int) = in_one) {
  TrafficTotals t;
  for (int j = 0; j < fold.steps(); ++j) {
    const Index size = sizes(j);
    t.sent += size;
    t.messages_sent += size > 0 ? pieces(size, fold.p) : 0;
    const bool near = same_host(input, fold.rank_of(v), fold.rank_of(v ^ (1 << j)));
    t.sent_to_other_hosts += near ? 0 : size;
  }
  return t;
}

/// One message to the other member of the pair.
inline TrafficTotals pair_traffic(const ScheduleInput& input, int rank, Index sent) {
  return {sent, 0, sent > 0, same_host(input, rank, rank ^ 1) ? 0 : sent};
}

/// The whole result to the odd member.
inline void unfold_whole(const Fold& fold, Index total, int rank, RoundBuilder& round) {
  if (fold.idle(rank)) return round.receive(rank - 1, total);
  round.send(rank + 1, out_at(0), out_at(0), total);
}

Entry halving_reduce_scatter();
Entry halving_all_reduce();  // and doubling

}  // namespace weft
