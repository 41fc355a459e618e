// Recursive halving: reduce_scatter, and all_reduce as halving and then doubling. What is long
// comes in pieces, each of which is added up while the next arrive.
#include "transports/schedule_fold.hpp"

namespace weft {
namespace {

/// Halving over the core, by which reduce_scatter and all_reduce differ only in where sums are
/// kept: all_reduce in out, reduce_scatter in scratch. In step j the groups are p/2^(j+1) wide and
/// a member keeps the blocks of its group.
class Halving {
 public:
  Halving(Fold fold, Blocks core, bool sums_in_out)
      : fold_(fold), core_(std::move(core)), in_out_(sums_in_out) {
    for (int j = 0; j < fold_.steps(); ++j) {
      int most = 1;
      for (int v = 0; v < fold_.p; ++v) most = std::max(most, cut(v, j).size());
      begin_.push_back(begin_.back() + most);
    }
  }

  /// The halving takes so many rounds: of each step as many as pieces come to the member that gets
  /// most.
  int rounds() const { return begin_.back(); }
  void round(int v, int r, RoundBuilder& round) const;
  Span kept(int v, int j) const { return Span(v, fold_.p >> (j + 1)); }
  Index kept_elements(int v, int j) const { return elements(kept(v, j)); }
  /// Where the sum of the element at `offset` of the whole message is kept at core member v.
  Place sum(int v, Index offset) const {
    return in_out_ ? out_at(offset) : scratch_at(offset - sums_begin(v));
  }
  Index scratch(int v) const { return slot(v, fold_.steps()).offset; }
  const Fold& fold() const { return fold_; }
  const Blocks& core() const { return core_; }

 private:
  /// What member v gets in step j, in pieces.
  Blocks cut(int v, int j) const {
    return Blocks::even(kept_elements(v, j), in_pieces(kept_elements(v, j), fold_.p));
  }
  void send(int v, int j, RoundBuilder& round) const;
  void receive(int v, int j, int piece, RoundBuilder& round) const;
  Index elements(Span span) const { return core_.span(span.begin, span.end); }
  /// The first step of a member without a partner to fold: nothing is summed yet but its own input.
  bool fresh(int v, int j) const { return j == 0 && !fold_.paired(v); }
  /// The last step of a reduce_scatter: what is kept is the member's block, and ends in out.
  bool final(int v, int j) const { return !in_out_ && j == fold_.steps() - 1 && !fold_.paired(v); }
  bool needs_slot(int v, int j) const { return !fresh(v, j) && !final(v, j); }
  Index sums_begin(int v) const { return fold_.paired(v) ? 0 : core_.offset(kept(v, 0).begin); }
  Index sums_size(int v) const;
  Place slot(int v, int j) const;
  Place landing(int v, int j) const;

  Fold fold_;
  Blocks core_;
  bool in_out_;
  std::vector<int> begin_{0};  // round in which each step begins
};

Place operator+(Place place, Index elements) {
  place.offset += elements;
  return place;
}

Index Halving::sums_size(int v) const {
  if (in_out_) return 0;
  if (fold_.paired(v)) return core_.total();
  return final(v, 0) ? 0 : kept_elements(v, 0);
}

/// Every step has a slot of its own: a partner may be a step ahead.
Place Halving::slot(int v, int j) const {
  Index offset = sums_size(v);
  for (int i = 0; i < j; ++i) offset += needs_slot(v, i) ? kept_elements(v, i) : 0;
  return scratch_at(offset);
}

Place Halving::landing(int v, int j) const {
  if (final(v, j)) return out_at(0);
  return fresh(v, j) ? sum(v, core_.offset(kept(v, j).begin)) : slot(v, j);
}

void Halving::round(int v, int r, RoundBuilder& round) const {
  const auto next = std::ranges::upper_bound(begin_, r);
  const int j = static_cast<int>(next - begin_.begin()) - 1, piece = r - *std::prev(next);
  if (piece == 0) send(v, j, round);
  if (piece < cut(v, j).size()) receive(v, j, piece, round);
}

void Halving::send(int v, int j, RoundBuilder& round) const {
  const int partner = v ^ (fold_.p >> (j + 1));
  const Index first = core_.offset(kept(partner, j).begin);
  const Place from = fresh(v, j) ? in_at(first) : sum(v, first);
  const Blocks pieces = cut(partner, j);
  for (int p = 0; p < pieces.size(); ++p) {
    round.send(fold_.rank_of(partner), from + pieces.offset(p),
               landing(partner, j) + pieces.offset(p), pieces.count(p));
  }
}

void Halving::receive(int v, int j, int piece, RoundBuilder& round) const {
  const Blocks pieces = cut(v, j);
  const Index at = pieces.offset(piece), count = pieces.count(piece);
  const Index mine = core_.offset(kept(v, j).begin);
  round.receive(fold_.rank_of(v ^ (fold_.p >> (j + 1))), count);
  if (needs_slot(v, j)) {
    round.reduce_after(slot(v, j) + at, sum(v, mine) + at, count);
  } else {
    const Place own = fresh(v, j) ? in_at(mine) : sum(v, mine);
    round.reduce_after(own + at, landing(v, j) + at, count);
  }
}

/// The odd member's whole input becomes the first term of the even one's sums.
void fold_sum(const Halving& halving, int rank, RoundBuilder& round) {
  const Fold& fold = halving.fold();
  const Index total = halving.core().total();
  const Place place = halving.sum(fold.core_of(rank), 0);
  if (fold.idle(rank)) return round.send(rank - 1, in_at(0), place, total);
  round.receive(rank + 1, total);
  round.reduce_after(in_at(0), place, total);
}

/// The even member of a pair has the sums of both blocks: one is its own, the other goes to the odd
/// member.
void unfold_scatter(const Halving& halving, const Blocks& blocks, int rank, RoundBuilder& round) {
  const Fold& fold = halving.fold();
  const int odd = rank | 1;
  if (fold.idle(rank)) return round.receive(rank - 1, blocks.count(odd));
  const auto sum = [&](int block) { return halving.sum(fold.core_of(rank), blocks.offset(block)); };
  round.copy_after(sum(rank), out_at(0), blocks.count(rank));
  round.send(odd, sum(odd), out_at(0), blocks.count(odd));
}

std::unique_ptr<Schedule> make_reduce_scatter(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Blocks blocks(input.counts);
  const Halving halving(fold, core_blocks(fold, blocks), /*sums_in_out=*/false);
  const int v = fold.core_of(rank);
  const bool idle = fold.idle(rank), in_pair = rank < 2 * fold.extra;
  const auto fill = [=](int r, RoundBuilder& round) {
    const int j = step_of(fold, r);
    if (j >= 0 && j < halving.rounds()) {
      if (!idle) halving.round(v, j, round);
    } else if (in_pair) {
      j < 0 ? fold_sum(halving, rank, round) : unfold_scatter(halving, blocks, rank, round);
    }
  };
  return make_lazy(rounds_of(fold, halving.rounds()), idle ? 0 : halving.scratch(v), fill);
}

/// What core member v sends and receives in the halving: sum over steps j of what the partner
/// keeps, and of what v keeps.
TrafficTotals halving_traffic(const ScheduleInput& input, const Fold& fold, const Blocks& core,
                              int v) {
  const auto kept = [&](int member, int bit) {
    const Span group(member, 1 << bit);
    return core.span(group.begin, group.end);
  };
  TrafficTotals t = core_traffic(
      input, fold, v, [&](int bit) { return kept(v ^ (1 << bit), bit); }, in_pieces);
  for (int bit = 0; bit < fold.steps(); ++bit) t.received += kept(v, bit);
  return t;
}

// Core: sum over steps of the partner's group's blocks, M(n-1)/n in all for even counts and n = p;
// an even member of a pair sends c[odd] and receives M more. Odd: sends M, receives c[me].
TrafficTotals reduce_scatter_traffic(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Blocks blocks(input.counts);
  TrafficTotals t;
  if (fold.idle(rank)) {
    t = pair_traffic(input, rank, blocks.total());
    t.received = blocks.count(rank);
    return t;
  }
  const int v = fold.core_of(rank);
  t = halving_traffic(input, fold, core_blocks(fold, blocks), v);
  if (fold.paired(v)) {
    t = t + pair_traffic(input, rank, blocks.count(rank + 1));
    t.received += blocks.total();
  }
  return t;
}

std::unique_ptr<Schedule> make_all_reduce(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Index total = count_of(input, 0);
  const Halving halving(fold, Blocks::even(total, fold.p), /*sums_in_out=*/true);
  const int v = fold.core_of(rank), halved = halving.rounds(), all = halved + fold.steps();
  const bool idle = fold.idle(rank), in_pair = rank < 2 * fold.extra;
  const auto fill = [=](int r, RoundBuilder& round) {
    const int j = step_of(fold, r);
    if (j < 0 || j == all) {
      if (!in_pair) return;
      return j < 0 ? fold_sum(halving, rank, round) : unfold_whole(fold, total, rank, round);
    }
    if (idle) return;
    if (j < halved) return halving.round(v, j, round);
    doubling_step(fold, halving.core(), v, j - halved, round);
  };
  return make_lazy(rounds_of(fold, all), idle ? 0 : halving.scratch(v), fill);
}

// Core: halving and doubling on p chunks; per step the two together are the group of twice the
// width, so that sent = received = sum over j = 1..log2 p of the chunks of the group of 2^j:
// 2M(n-1)/n for even chunks and n = p. Members of a pair send and receive M more; the odd ones
// nothing else.
TrafficTotals all_reduce_traffic(const ScheduleInput& input, int rank) {
  const Fold fold(input.size);
  const Index total = count_of(input, 0);
  TrafficTotals t;
  if (!fold.idle(rank)) {
    const int v = fold.core_of(rank);
    const Blocks chunks = Blocks::even(total, fold.p);
    const auto group = [&](int member, int bit) {
      const Span span(member, 1 << bit);
      return chunks.span(span.begin, span.end);
    };
    t = core_traffic(input, fold, v, [&](int bit) { return group(v, bit); }) +
        core_traffic(
            input, fold, v, [&](int bit) { return group(v ^ (1 << bit), bit); }, in_pieces);
    t.received = t.sent;
  }
  if (rank >= 2 * fold.extra) return t;
  t = t + pair_traffic(input, rank, total);
  t.received += total;
  return t;
}

}  // namespace

Entry halving_reduce_scatter() { return {make_reduce_scatter, reduce_scatter_traffic}; }
Entry halving_all_reduce() { return {make_all_reduce, all_reduce_traffic}; }

}  // namespace weft
