// Ring: every member talks to its two neighbours only, so each link carries the same bytes,
// M(n-1)/n for a gather or a reduce-scatter, in n-1 rounds. Pipelined: the same in pieces, each of
// which gets its part and goes on while the next ones arrive. all_to_all_v, which a ring would have
// to forward, rotates over the pairs instead.
#include <functional>

#include "transports/schedule_builders.hpp"

namespace weft {
namespace {

struct Ring {
  int n, me;
  int next() const { return wrap(me + 1, n); }
  int previous() const { return wrap(me - 1, n); }
};

/// Into how many messages a block is cut, in a ring of n.
using Pieces = int (*)(Index block, int n);
/// What goes round the ring: in step k block me-lag-k goes out and the block before it comes in,
/// which goes out in step k+1. Pieces come one a round; each goes on in the round after.
struct Journey {
  Ring ring;
  Blocks blocks;
  Pieces pieces;
  int lag;  // 0: the own block starts here; 1: the one before it does, and the own one ends here
  int reduces;  // the first steps: what comes gets this rank's part of in
  int steps;
  std::function<Place(int block)> source;             // where a block starts from
  std::function<Place(int rank, int block)> landing;  // where it arrives

  int goes(int step) const { return wrap(ring.me - lag - step, ring.n); }
  int comes(int step) const { return goes(step + 1); }
  int pieces_of(int block) const { return pieces(blocks.count(block), ring.n); }

  /// As many as pieces come to the member that gets most. Blocks come in turn, so to each member
  /// all of them, once or twice round, less those that its steps end before.
  int rounds() const {
    const int times = (steps + ring.n - 1) / ring.n;
    int all = 0, most = 0;
    for (int b = 0; b < ring.n; ++b) all += times * pieces_of(b);
    for (int rank = 0; rank < ring.n; ++rank) {
      const int first = wrap(rank - lag - 1, ring.n);
      int these = all;
      for (int k = steps; k < times * ring.n; ++k) these -= pieces_of(wrap(first - k, ring.n));
      most = std::max(most, these);
    }
    return most;
  }

  void send(int step, int piece, RoundBuilder& round) const {
    const int block = goes(step);
    const Blocks cut = Blocks::even(blocks.count(block), pieces_of(block));
    Place from = step == 0 ? source(block) : landing(ring.me, block);
    Place to = landing(ring.next(), block);
    from.offset += cut.offset(piece);
    to.offset += cut.offset(piece);
    round.send(ring.next(), from, to, cut.count(piece));
  }

  void receive(int step, int piece, RoundBuilder& round) const {
    const int block = comes(step);
    const Blocks cut = Blocks::even(blocks.count(block), pieces_of(block));
    const Index offset = cut.offset(piece);
    Place at = landing(ring.me, block);
    at.offset += offset;
    round.receive(ring.previous(), cut.count(piece));
    if (step >= reduces) return;
    round.reduce_after(in_at(blocks.offset(block) + offset), at, cut.count(piece));
  }
};

std::unique_ptr<Schedule> make_journey(const Journey& journey, Index scratch, Index own) {
  // Pieces that have come when a step begins.
  std::vector<int> before(static_cast<std::size_t>(journey.steps) + 1, 0);
  for (int k = 0; k < journey.steps; ++k) {
    const auto step = static_cast<std::size_t>(k);
    before[step + 1] = before[step] + journey.pieces_of(journey.comes(k));
  }
  const auto fill = [journey, before, own](int r, RoundBuilder& round) {
    const auto step_of = [&](int arrival) {
      return static_cast<int>(std::ranges::upper_bound(before, arrival) - before.begin()) - 1;
    };
    if (r == 0) {
      const int block = journey.goes(0);
      if (own > 0) round.copy_meanwhile(in_at(0), out_at(journey.blocks.offset(block)), own);
      for (int p = 0; p < journey.pieces_of(block); ++p) journey.send(0, p, round);
    } else if (r <= before.back()) {
      const int k = step_of(r - 1);
      const int piece = r - 1 - before[static_cast<std::size_t>(k)];
      if (k + 1 < journey.steps) journey.send(k + 1, piece, round);
    }
    if (r >= before.back()) return;
    const int k = step_of(r);
    journey.receive(k, r - before[static_cast<std::size_t>(k)], round);
  };
  return make_lazy(journey.rounds(), scratch, fill);
}

template <Pieces pieces>
std::unique_ptr<Schedule> make_all_gather(const ScheduleInput& input, int rank) {
  const Blocks blocks(input.counts);
  const Journey journey{
      .ring = {input.size, rank},
      .blocks = blocks,
      .pieces = pieces,
      .lag = 0,
      .reduces = 0,
      .steps = input.size - 1,
      .source = [](int) { return in_at(0); },
      .landing = [blocks](int, int block) { return out_at(blocks.offset(block)); }};
  return make_journey(journey, 0, blocks.count(rank));
}

std::int64_t messages_of(const Blocks& blocks, Pieces pieces, int but) {
  std::int64_t messages = 0;
  for (int b = 0; b < blocks.size(); ++b) {
    const Index count = blocks.count(b);
    if (b != but) messages += std::min<Index>(count, pieces(count, blocks.size()));
  }
  return messages;
}

// Every block but the next member's goes out, every block but the own comes in: sent = M - c[me+1],
// received = M - c[me].
TrafficTotals gather_traffic(const ScheduleInput& input, int rank, const Blocks& blocks,
                             Pieces pieces) {
  const Ring ring{input.size, rank};
  TrafficTotals t;
  t.sent = blocks.total() - blocks.count(ring.next());
  t.received = blocks.total() - blocks.count(rank);
  t.messages_sent = messages_of(blocks, pieces, ring.next());
  t.sent_to_other_hosts = same_host(input, rank, ring.next()) ? 0 : t.sent;
  return t;
}

template <Pieces pieces>
TrafficTotals all_gather_traffic(const ScheduleInput& input, int rank) {
  return gather_traffic(input, rank, Blocks(input.counts), pieces);
}

/// Scratch of a reduce-scatter at `rank`: the blocks in the order of the ring, from rank+1 on, so
/// that the two that need no scratch (of rank-1, which only starts here, and of rank, which ends in
/// out) stand last.
Index rotated_offset(const Blocks& blocks, int rank, int block) {
  const Index offset = blocks.offset(block) - blocks.offset(rank + 1);
  return block > rank ? offset : offset + blocks.total();
}

template <Pieces pieces>
std::unique_ptr<Schedule> make_reduce_scatter(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  const Blocks blocks(input.counts);
  const Journey journey{.ring = ring,
                        .blocks = blocks,
                        .pieces = pieces,
                        .lag = 1,
                        .reduces = input.size - 1,
                        .steps = input.size - 1,
                        .source = [blocks](int block) { return in_at(blocks.offset(block)); },
                        .landing =
                            [blocks](int at, int block) {
                              return block == at ? out_at(0)
                                                 : scratch_at(rotated_offset(blocks, at, block));
                            }};
  return make_journey(journey, blocks.total() - blocks.count(rank) - blocks.count(ring.previous()),
                      0);
}

// Every block but the own goes out, every block but the previous member's comes in: sent = M -
// c[me], received = M - c[me-1].
TrafficTotals scatter_traffic(const ScheduleInput& input, int rank, const Blocks& blocks,
                              Pieces pieces) {
  const Ring ring{input.size, rank};
  TrafficTotals t;
  t.sent = blocks.total() - blocks.count(rank);
  t.received = blocks.total() - blocks.count(ring.previous());
  t.messages_sent = messages_of(blocks, pieces, rank);
  t.sent_to_other_hosts = same_host(input, rank, ring.next()) ? 0 : t.sent;
  return t;
}

template <Pieces pieces>
TrafficTotals reduce_scatter_traffic(const ScheduleInput& input, int rank) {
  return scatter_traffic(input, rank, Blocks(input.counts), pieces);
}

// Reduce-scatter, then gather, of n even chunks. Partial sums lie in out: the finished piece
// reaches a place only after the partial sum that left it has gone all the way round, so the ring
// itself orders the two.
template <Pieces pieces>
std::unique_ptr<Schedule> make_all_reduce(const ScheduleInput& input, int rank) {
  const Blocks blocks = Blocks::even(count_of(input, 0), input.size);
  const Journey journey{
      .ring = {input.size, rank},
      .blocks = blocks,
      .pieces = pieces,
      .lag = 1,
      .reduces = input.size - 1,
      .steps = 2 * (input.size - 1),
      .source = [blocks](int block) { return in_at(blocks.offset(block)); },
      .landing = [blocks](int, int block) { return out_at(blocks.offset(block)); }};
  return make_journey(journey, 0, 0);
}

// Both halves, on chunks k of M/n: sent = 2M - k[me] - k[me+1], received = 2M - k[me-1] - k[me];
// 2M(n-1)/n when even.
template <Pieces pieces>
TrafficTotals all_reduce_traffic(const ScheduleInput& input, int rank) {
  const Blocks chunks = Blocks::even(count_of(input, 0), input.size);
  return scatter_traffic(input, rank, chunks, pieces) + gather_traffic(input, rank, chunks, pieces);
}

// Broadcast: a chain from the root round the ring, in segments, so that all links of the chain work
// at once. Segments of 64 Ki elements keep the filling of the chain short against the transfer
// without making messages small; 64 bound the rounds.
constexpr Index kSegmentElements = 1 << 16;
constexpr Index kMostSegments = 64;

int segments_of(Index total) {
  const Index wanted = (total + kSegmentElements - 1) / kSegmentElements;
  return static_cast<int>(std::clamp<Index>(wanted, 1, kMostSegments));
}

std::unique_ptr<Schedule> make_broadcast(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  const int place = wrap(rank - input.root, ring.n);  // how far down the chain
  const int segments = segments_of(count_of(input, 0));
  const auto fill = [=, blocks = Blocks::even(count_of(input, 0), segments)](int r,
                                                                             RoundBuilder& round) {
    const auto count = [&](int s) { return s < 0 || s >= segments ? 0 : blocks.count(s); };
    const int goes = r - place, comes = r - place + 1;
    if (place == 0 && r == 0) round.copy_meanwhile(in_at(0), out_at(0), blocks.total());
    if (place < ring.n - 1 && count(goes) > 0) {
      const Place to = out_at(blocks.offset(goes));
      round.send(ring.next(), place == 0 ? in_at(to.offset) : to, to, count(goes));
    }
    if (place > 0) round.receive(ring.previous(), count(comes));
  };
  return make_lazy(segments + ring.n - 2, 0, fill);
}

// All but the last of the chain send M once, all but the root receive it: sent = M, in ceil(M / 64
// Ki), at most 64, messages.
TrafficTotals broadcast_traffic(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  const Index total = count_of(input, 0);
  TrafficTotals t;
  t.received = rank == input.root ? 0 : total;
  if (ring.next() == input.root) return t;
  t.sent = total;
  t.messages_sent = std::min<Index>(total, segments_of(total));
  t.sent_to_other_hosts = same_host(input, rank, ring.next()) ? 0 : total;
  return t;
}

/// Round r: to the member r+1 ahead, from the member r+1 behind, so that nobody receives from two
/// at once.
std::unique_ptr<Schedule> make_all_to_all_v(const ScheduleInput& input, int rank) {
  return make_lazy(input.size - 1, 0, [input, rank](int r, RoundBuilder& round) {
    const auto exchange = [&](int peer) {
      return std::pair(in_at(send_offset(input, rank, peer)),
                       out_at(recv_offset(input, rank, peer)));
    };
    if (r == 0) {
      const auto [from, to] = exchange(rank);
      round.copy_meanwhile(from, to, cell(input, rank, rank));
    }
    const int ahead = wrap(rank + r + 1, input.size), behind = wrap(rank - r - 1, input.size);
    const auto [from, to] = exchange(ahead);
    round.send(ahead, from, to, cell(input, rank, ahead));
    round.receive(behind, cell(input, behind, rank));
  });
}

template <Pieces pieces>
Family family_of(std::string_view name, std::string_view summary) {
  return {
      .name = name,
      .summary = summary,
      .all_gather = {make_all_gather<pieces>, all_gather_traffic<pieces>},
      .all_reduce = {make_all_reduce<pieces>, all_reduce_traffic<pieces>},
      .reduce_scatter = {make_reduce_scatter<pieces>, reduce_scatter_traffic<pieces>},
      .broadcast = {make_broadcast, broadcast_traffic},
      .all_to_all_v = {make_all_to_all_v, straight_all_to_all},
      .unsuitable = "",
  };
}

}  // namespace

const Family& ring_family() {
  static const Family family = family_of<in_one>(
      "ring", "neighbour to neighbour in n-1 rounds; all_to_all_v by rotation over the pairs");
  return family;
}

const Family& pipelined_family() {
  static const Family family = family_of<in_pieces>(
      "pipelined", "the ring in pieces: each is added up and sent on while the next arrive");
  return family;
}

}  // namespace weft
