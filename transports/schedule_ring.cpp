// Ring: every member talks to its two neighbours only, so each link carries the same bytes,
// M(n-1)/n for a gather or a reduce-scatter, in n-1 rounds. all_to_all_v, which a ring would have
// to forward, rotates over the pairs instead.
#include <algorithm>

#include "transports/schedule_builders.hpp"

namespace weft {
namespace {

struct Ring {
  int n, me;
  int next() const { return wrap(me + 1, n); }
  int previous() const { return wrap(me - 1, n); }
};

/// Round r of the gather: on goes block me-r, which came in the round before; `own` is where block
/// me starts from.
void gather_step(const Ring& ring, const Blocks& blocks, Place own, int r, RoundBuilder& round) {
  const int goes = wrap(ring.me - r, ring.n), comes = wrap(ring.me - 1 - r, ring.n);
  const Place there = out_at(blocks.offset(goes));
  round.send(ring.next(), r == 0 ? own : there, there, blocks.count(goes));
  round.receive(ring.previous(), blocks.count(comes));
}

/// Round r of the reduce-scatter: the partial sum of block me-2-r arrives, gets this rank's part
/// and goes on in the next round; block me ends here in round n-2. landing(rank, block) is where a
/// partial sum lies at `rank`.
template <class Landing>
void reduce_step(const Ring& ring, const Blocks& blocks, const Landing& landing, int r,
                 RoundBuilder& round) {
  const int goes = wrap(ring.me - 1 - r, ring.n), comes = wrap(ring.me - 2 - r, ring.n);
  const Place from = r == 0 ? in_at(blocks.offset(goes)) : landing(ring.me, goes);
  round.send(ring.next(), from, landing(ring.next(), goes), blocks.count(goes));
  round.receive(ring.previous(), blocks.count(comes));
  round.reduce_after(in_at(blocks.offset(comes)), landing(ring.me, comes), blocks.count(comes));
}

std::unique_ptr<Schedule> make_all_gather(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  return make_lazy(
      ring.n - 1, 0, [ring, blocks = Blocks(input.counts)](int r, RoundBuilder& round) {
        if (r == 0)
          round.copy_before(in_at(0), out_at(blocks.offset(ring.me)), blocks.count(ring.me));
        gather_step(ring, blocks, in_at(0), r, round);
      });
}

// Every block but the next member's goes out, every block but the own comes in: sent = M - c[me+1],
// received = M - c[me].
TrafficTotals gather_traffic(const ScheduleInput& input, int rank, const Blocks& blocks) {
  const Ring ring{input.size, rank};
  TrafficTotals t;
  t.sent = blocks.total() - blocks.count(ring.next());
  t.received = blocks.total() - blocks.count(rank);
  t.messages_sent = blocks.nonzero() - (blocks.count(ring.next()) > 0);
  t.sent_to_other_hosts = same_host(input, rank, ring.next()) ? 0 : t.sent;
  return t;
}

TrafficTotals all_gather_traffic(const ScheduleInput& input, int rank) {
  return gather_traffic(input, rank, Blocks(input.counts));
}

/// Scratch of a reduce-scatter at `rank`: the blocks in the order of the ring, from rank+1 on, so
/// that the two that need no scratch (of rank-1, which only starts here, and of rank, which ends in
/// out) stand last.
Index rotated_offset(const Blocks& blocks, int rank, int block) {
  const Index offset = blocks.offset(block) - blocks.offset(rank + 1);
  return block > rank ? offset : offset + blocks.total();
}

std::unique_ptr<Schedule> make_reduce_scatter(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  const Blocks blocks(input.counts);
  const Index scratch = blocks.total() - blocks.count(rank) - blocks.count(ring.previous());
  return make_lazy(ring.n - 1, scratch, [ring, blocks](int r, RoundBuilder& round) {
    const auto landing = [&](int at, int block) {
      return block == at ? out_at(0) : scratch_at(rotated_offset(blocks, at, block));
    };
    reduce_step(ring, blocks, landing, r, round);
  });
}

// Every block but the own goes out, every block but the previous member's comes in: sent = M -
// c[me], received = M - c[me-1].
TrafficTotals scatter_traffic(const ScheduleInput& input, int rank, const Blocks& blocks) {
  const Ring ring{input.size, rank};
  TrafficTotals t;
  t.sent = blocks.total() - blocks.count(rank);
  t.received = blocks.total() - blocks.count(ring.previous());
  t.messages_sent = blocks.nonzero() - (blocks.count(rank) > 0);
  t.sent_to_other_hosts = same_host(input, rank, ring.next()) ? 0 : t.sent;
  return t;
}

TrafficTotals reduce_scatter_traffic(const ScheduleInput& input, int rank) {
  return scatter_traffic(input, rank, Blocks(input.counts));
}

// Reduce-scatter, then gather, of n even chunks. Partial sums lie in out: the finished chunk
// reaches a place only after the partial sum that left it has gone all the way round, so the ring
// itself orders the two.
std::unique_ptr<Schedule> make_all_reduce(const ScheduleInput& input, int rank) {
  const Ring ring{input.size, rank};
  const auto fill = [ring, blocks = Blocks::even(count_of(input, 0), ring.n)](int r,
                                                                              RoundBuilder& round) {
    const auto landing = [&](int, int block) { return out_at(blocks.offset(block)); };
    if (r < ring.n - 1) {
      reduce_step(ring, blocks, landing, r, round);
    } else {
      gather_step(ring, blocks, landing(ring.me, ring.me), r - (ring.n - 1), round);
    }
  };
  return make_lazy(2 * (ring.n - 1), 0, fill);
}

// Both halves, on chunks k of M/n: sent = 2M - k[me] - k[me+1], received = 2M - k[me-1] - k[me];
// 2M(n-1)/n when even.
TrafficTotals all_reduce_traffic(const ScheduleInput& input, int rank) {
  const Blocks chunks = Blocks::even(count_of(input, 0), input.size);
  return scatter_traffic(input, rank, chunks) + gather_traffic(input, rank, chunks);
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
    if (place == 0 && r == 0) round.copy_before(in_at(0), out_at(0), blocks.total());
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
      round.copy_before(from, to, cell(input, rank, rank));
    }
    const int ahead = wrap(rank + r + 1, input.size), behind = wrap(rank - r - 1, input.size);
    const auto [from, to] = exchange(ahead);
    round.send(ahead, from, to, cell(input, rank, ahead));
    round.receive(behind, cell(input, behind, rank));
  });
}

}  // namespace

const Family& ring_family() {
  static const Family family = {
      .name = "ring",
      .summary = "neighbour to neighbour in n-1 rounds; all_to_all_v by rotation over the pairs",
      .all_gather = {make_all_gather, all_gather_traffic},
      .all_reduce = {make_all_reduce, all_reduce_traffic},
      .reduce_scatter = {make_reduce_scatter, reduce_scatter_traffic},
      .broadcast = {make_broadcast, broadcast_traffic},
      .all_to_all_v = {make_all_to_all_v, straight_all_to_all},
      .unsuitable = "",
  };
  return family;
}

}  // namespace weft
