// Recursive doubling, in log2 n rounds: all_gather, all_reduce of whole messages, broadcast by a
// binomial tree.
#include "transports/schedule_fold.hpp"

namespace weft {
namespace {

// ---- all_gather

/// Everything but the odd member's own block, which it has.
void unfold_gather(const Fold& fold, const Blocks& blocks, int rank, RoundBuilder& round) {
  const int odd = rank | 1, n = blocks.size();
  const Index before = blocks.offset(odd), after = blocks.span(odd + 1, n);
  if (fold.idle(rank)) {
    round.receive(rank - 1, before);
    round.receive(rank - 1, after);
    return;
  }
  const Place rest = out_at(blocks.offset(odd + 1));
  round.send(odd, out_at(0), out_at(0), before);
  round.send(odd, rest, rest, after);
}

void fold_gather(const Fold& fold, const Blocks& blocks, int rank, RoundBuilder& round) {
  const int odd = rank | 1;
  if (fold.idle(rank)) {
    round.send(rank - 1, in_at(0), out_at(blocks.offset(odd)), blocks.count(odd));
  } else {
    round.receive(odd, blocks.count(odd));
  }
}

std::unique_ptr<Schedule> make_all_gather(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Blocks blocks(input.counts);
  const auto fill = [=, core = core_blocks(fold, blocks)](int r, RoundBuilder& round) {
    if (r == 0) round.copy_before(in_at(0), out_at(blocks.offset(rank)), blocks.count(rank));
    const int j = step_of(fold, r), v = fold.core_of(rank);
    const bool in_pair = rank < 2 * fold.extra;
    if (j >= 0 && j < fold.steps()) {
      if (!fold.idle(rank)) doubling_step(fold, core, v, j, round);
    } else if (in_pair) {
      j < 0 ? fold_gather(fold, blocks, rank, round) : unfold_gather(fold, blocks, rank, round);
    }
  };
  return make_lazy(rounds_of(fold, fold.steps()), 0, fill);
}

// Core: sum over steps j of the blocks of the group of 2^j around it, M(n-1)/n in all for even
// counts and n = p; an even member of a pair sends M - c[odd] more. Odd: c[me]. All receive M -
// c[me].
TrafficTotals all_gather_traffic(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Blocks blocks(input.counts);
  TrafficTotals t;
  if (fold.idle(rank)) {
    t = pair_traffic(input, rank, blocks.count(rank));
  } else {
    const int v = fold.core_of(rank);
    t = core_traffic(input, fold, v, [&](int j) {
      const Span group(v, 1 << j);
      return blocks.span(fold.first(group.begin), fold.first(group.end));
    });
    if (fold.paired(v)) {
      t = t + pair_traffic(input, rank, blocks.offset(rank + 1));
      t = t + pair_traffic(input, rank, blocks.span(rank + 2, input.size));
    }
  }
  t.received = blocks.total() - blocks.count(rank);
  return t;
}

// ---- all_reduce by doubling

/// Partners swap whole sums. Both add the same two terms and addition commutes, so all get the same
/// bits. A sum is made in the slot the partner's arrived in, as the one sent may still be on its
/// way; the last is made in out.
struct Swap {
  Fold fold;
  Index total;

  Place first(int v) const { return fold.paired(v) ? scratch_at(0) : in_at(0); }
  Place landing(int v, int j) const {
    return j == fold.steps() - 1 ? out_at(0) : scratch_at((j + fold.paired(v)) * total);
  }
  Index scratch(int v) const { return (fold.steps() - 1 + fold.paired(v)) * total; }
  void step(int v, int j, RoundBuilder& round) const {
    const int partner = v ^ (1 << j);
    const Place sum = j == 0 ? first(v) : landing(v, j - 1);
    round.send(fold.rank_of(partner), sum, landing(partner, j), total);
    round.receive(fold.rank_of(partner), total);
    round.reduce_after(sum, landing(v, j), total);
  }
};

void fold_swap(const Swap& swap, int rank, RoundBuilder& round) {
  if (swap.fold.idle(rank)) return round.send(rank - 1, in_at(0), scratch_at(0), swap.total);
  round.receive(rank + 1, swap.total);
  round.reduce_after(in_at(0), scratch_at(0), swap.total);
}

std::unique_ptr<Schedule> make_doubling(const ScheduleInput& input, int rank) {
  const Swap swap{Fold(input.size), count_of(input, 0)};
  const Fold& fold = swap.fold;
  const int v = fold.core_of(rank);
  const auto fill = [=](int r, RoundBuilder& round) {
    const int j = step_of(swap.fold, r);
    if (j >= 0 && j < swap.fold.steps()) {
      if (!swap.fold.idle(rank)) swap.step(v, j, round);
    } else if (rank < 2 * swap.fold.extra) {
      j < 0 ? fold_swap(swap, rank, round) : unfold_whole(swap.fold, swap.total, rank, round);
    }
  };
  return make_lazy(rounds_of(fold, fold.steps()), fold.idle(rank) ? 0 : swap.scratch(v), fill);
}

// Core: sent = received = M log2 p. Members of a pair M more; the odd ones nothing else.
TrafficTotals doubling_traffic(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Index total = count_of(input, 0);
  TrafficTotals t;
  if (!fold.idle(rank))
    t = core_traffic(input, fold, fold.core_of(rank), [&](int) { return total; });
  if (rank < 2 * fold.extra) t = t + pair_traffic(input, rank, total);
  t.received = t.sent;
  return t;
}

// ---- broadcast: binomial tree

std::unique_ptr<Schedule> make_broadcast(const ScheduleInput& input, int rank) {
  const int n = input.size, root = input.root, place = wrap(rank - root, n);
  const int rounds = std::bit_width(static_cast<unsigned>(n - 1));
  return make_lazy(rounds, 0, [=, total = count_of(input, 0)](int r, RoundBuilder& round) {
    if (place == 0 && r == 0) round.copy_meanwhile(in_at(0), out_at(0), total);
    const int width = 1 << r;  // members that have the data already
    if (place < width) {
      if (place + width >= n) return;
      const Place from = place == 0 ? in_at(0) : out_at(0);
      round.send(wrap(rank + width, n), from, out_at(0), total);
    } else if (place < 2 * width) {
      round.receive(wrap(rank - width, n), total);
    }
  });
}

// The member at distance d from the root sends M to every d + 2^j < n with 2^j > d; all but the
// root receive M.
TrafficTotals broadcast_traffic(const ScheduleInput& input, int rank) {
  const int n = input.size, place = wrap(rank - input.root, n);
  const Index total = count_of(input, 0);
  TrafficTotals t;
  t.received = place == 0 ? 0 : total;
  for (int width = 1; place + width < n; width *= 2) {
    if (width <= place) continue;
    t.sent += total;
    t.messages_sent += total > 0;
    t.sent_to_other_hosts += same_host(input, rank, wrap(rank + width, n)) ? 0 : total;
  }
  return t;
}

Family make_recursive() {
  return {
      .name = "recursive",
      .summary = "log2 n rounds: doubling, halving, binomial tree; no all_to_all_v",
      .all_gather = {make_all_gather, all_gather_traffic},
      .all_reduce = halving_all_reduce(),
      .reduce_scatter = halving_reduce_scatter(),
      .broadcast = {make_broadcast, broadcast_traffic},
      .all_to_all_v = {},
      .unsuitable =
          "the recursive algorithms have no all_to_all_v, whose bytes they would send "
          "log2(n)/2 times over; use direct, ring or hierarchical",
  };
}

Family make_recursive_doubling() {
  Family family = make_recursive();
  family.name = "recursive-doubling";
  family.summary =
      "as recursive, but all_reduce swaps whole messages in log2 n rounds: for small ones";
  family.all_reduce = {make_doubling, doubling_traffic};
  return family;
}

}  // namespace

const Family& recursive_family() {
  static const Family family = make_recursive();
  return family;
}

const Family& recursive_doubling_family() {
  static const Family family = make_recursive_doubling();
  return family;
}

}  // namespace weft
