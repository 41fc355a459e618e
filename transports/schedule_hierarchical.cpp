// Two levels: all_gather goes between hosts first and then inside them, reduce_scatter the other
// way round, all_reduce is one after the other.
#include "transports/schedule_hierarchical.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace weft {

HostMap::HostMap(const ScheduleInput& input) {
  std::unordered_map<int, int>
      index;  // in order of first appearance: a group may have any hosts of the world
  for (int rank = 0; rank < input.size; ++rank) {
    const int name = input.hosts.empty() ? 0 : input.hosts[static_cast<std::size_t>(rank)];
    const int host = index.try_emplace(name, static_cast<int>(index.size())).first->second;
    if (host == hosts()) members_.emplace_back();
    auto& members = members_[static_cast<std::size_t>(host)];
    host_of_.push_back(host);
    local_of_.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
}

int HostMap::deputy(int rank, int host) const {
  const std::vector<int>& there = members(host);
  return there[static_cast<std::size_t>(local_of(rank)) % there.size()];
}

int HostMap::neighbour(int rank, int i) const {
  const std::vector<int>& here = neighbours(rank);
  return here[static_cast<std::size_t>(local_of(rank) + i) % here.size()];
}

namespace {

/// Blocks of the whole message that one member serves: those next to each other travel as one.
struct Run {
  Index offset = 0;  // in the whole message
  Index packed = 0;  // where only the served blocks lie, one after another
  Index count = 0;
};

/// The hosts, and where each member's block lies in the whole message. Blocks may be in any order:
/// all_reduce, whose chunks are its own to place, orders them so that what a member serves lies
/// together.
class TwoLevel {
 public:
  /// Blocks in rank order, as all_gather and reduce_scatter have them.
  static TwoLevel by_rank(const ScheduleInput& input);
  /// n even chunks, ordered by local index, then host: rails lie together where hosts are of equal
  /// size.
  static TwoLevel by_rail(const ScheduleInput& input);

  const HostMap& map() const { return map_; }
  Index offset(int rank) const { return blocks_.offset(position_of(rank)); }
  Index count(int rank) const { return blocks_.count(position_of(rank)); }
  Index total() const { return blocks_.total(); }

  /// Calls fn(q, packed offset) for every member that `member` serves, in the order of the message.
  template <class Fn>
  void for_each_served(int member, Fn&& fn) const;
  Index served(int member) const;  // elements
  std::vector<Run> runs(int member) const;

 private:
  TwoLevel(HostMap map, std::vector<int> order, Blocks blocks);
  int position_of(int rank) const { return position_[static_cast<std::size_t>(rank)]; }

  HostMap map_;
  std::vector<int> order_, position_;  // member at each position, and back
  Blocks blocks_;
};

TwoLevel::TwoLevel(HostMap map, std::vector<int> order, Blocks blocks)
    : map_(std::move(map)),
      order_(std::move(order)),
      position_(order_.size()),
      blocks_(std::move(blocks)) {
  for (std::size_t i = 0; i < order_.size(); ++i)
    position_[static_cast<std::size_t>(order_[i])] = static_cast<int>(i);
}

std::vector<int> rank_order(int n) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TwoLevel TwoLevel::by_rank(const ScheduleInput& input) {
  return {HostMap(input), rank_order(input.size), Blocks(input.counts)};
}

TwoLevel TwoLevel::by_rail(const ScheduleInput& input) {
  HostMap map(input);
  std::vector<int> order = rank_order(input.size);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(map.local_of(a), map.host_of(a)) < std::pair(map.local_of(b), map.host_of(b));
  });
  return {std::move(map), std::move(order), Blocks::even(count_of(input, 0), input.size)};
}

template <class Fn>
void TwoLevel::for_each_served(int member, Fn&& fn) const {
  Index packed = 0;
  for (int q : order_) {
    if (!map_.serves(member, q)) continue;
    fn(q, packed);
    packed += count(q);
  }
}

Index TwoLevel::served(int member) const {
  Index sum = 0;
  for_each_served(member, [&](int q, Index) { sum += count(q); });
  return sum;
}

std::vector<Run> TwoLevel::runs(int member) const {
  std::vector<Run> runs;
  for_each_served(member, [&](int q, Index packed) {
    if (count(q) == 0) return;
    if (!runs.empty() && runs.back().offset + runs.back().count == offset(q)) {
      runs.back().count += count(q);
    } else {
      runs.push_back({offset(q), packed, count(q)});
    }
  });
  return runs;
}

// ---- gather: 0 between hosts, 1 inside

void gather_between(const TwoLevel& level, int me, Place own, RoundBuilder& round) {
  const HostMap& map = level.map();
  for (int i = 1; i < map.hosts(); ++i) {
    const int deputy = map.deputy(me, wrap(map.host_of(me) + i, map.hosts()));
    round.send(deputy, own, out_at(level.offset(me)), level.count(me));
  }
  level.for_each_served(me, [&](int q, Index) {
    if (q != me) round.receive(q, level.count(q));
  });
}

void gather_inside(const TwoLevel& level, int me, RoundBuilder& round) {
  const HostMap& map = level.map();
  const std::vector<Run> mine = level.runs(me);
  for (int i = 1; i < map.host_size(me); ++i) {
    for (const Run& run : mine)
      round.send(map.neighbour(me, i), out_at(run.offset), out_at(run.offset), run.count);
    const int from = map.neighbour(me, i);
    for (const Run& run : level.runs(from)) round.receive(from, run.count);
  }
}

std::unique_ptr<Schedule> make_all_gather(const ScheduleInput& input, int rank) {
  return make_lazy(2, 0, [rank, level = TwoLevel::by_rank(input)](int r, RoundBuilder& round) {
    if (r == 1) return gather_inside(level, rank, round);
    round.copy_meanwhile(in_at(0), out_at(level.offset(rank)), level.count(rank));
    gather_between(level, rank, in_at(0), round);
  });
}

// H hosts, L members on this one, R the elements this member serves, in |runs| pieces: sent = (H-1)
// c[me] between hosts + (L-1) R inside; received = M - c[me]. Even counts and hosts: R = H c, so
// that (H-1) c + (L-1) H c = M(n-1)/n.
TrafficTotals gather_traffic(const TwoLevel& level, int rank) {
  const HostMap& map = level.map();
  const Index far = map.hosts() - 1, near = map.host_size(rank) - 1, own = level.count(rank);
  TrafficTotals t;
  t.sent_to_other_hosts = far * own;
  t.sent = far * own + near * level.served(rank);
  t.received = level.total() - own;
  t.messages_sent = (own > 0 ? far : 0) + near * static_cast<std::int64_t>(level.runs(rank).size());
  return t;
}

TrafficTotals all_gather_traffic(const ScheduleInput& input, int rank) {
  return gather_traffic(TwoLevel::by_rank(input), rank);
}

// ---- reduce-scatter: 0 inside hosts, 1 between

/// Where `rank` gets the sum that `host` made for its block: the first H-1 slots of its scratch.
Place host_slot(const TwoLevel& level, int rank, int host) {
  const int own = level.map().host_of(rank);
  return scratch_at((host < own ? host : host - 1) * level.count(rank));
}

/// Behind them, L-1 slots of all that `rank` serves, one per neighbour; the first becomes this
/// host's sum.
struct NeighbourSlots {
  NeighbourSlots(const TwoLevel& level, int rank)
      : map(level.map()),
        rank(rank),
        served(level.served(rank)),
        base((map.hosts() - 1) * level.count(rank)) {}
  Place from(int q, Index packed) const {
    const int local = map.local_of(q), own = map.local_of(rank);
    return scratch_at(base + (local < own ? local : local - 1) * served + packed);
  }
  Place sum(Index packed) const { return scratch_at(base + packed); }
  Index end() const { return base + (map.host_size(rank) - 1) * served; }

  const HostMap& map;
  int rank;
  Index served, base;
};

void scatter_inside(const TwoLevel& level, int me, RoundBuilder& round) {
  const HostMap& map = level.map();
  const std::vector<Run> mine = level.runs(me);
  for (int i = 1; i < map.host_size(me); ++i) {
    const int peer = map.neighbour(me, i);
    const NeighbourSlots slots(level, peer);
    for (const Run& run : level.runs(peer))
      round.send(peer, in_at(run.offset), slots.from(me, run.packed), run.count);
    for (const Run& run : mine) round.receive(peer, run.count);
  }
  if (map.host_size(me) == 1) return;
  const NeighbourSlots slots(level, me);
  for (const Run& run : mine)
    round.reduce_after(in_at(run.offset), slots.sum(run.packed), run.count);
  for (int q : map.neighbours(me)) {
    const Place slot = slots.from(q, 0);
    if (q != me && slot != slots.sum(0)) round.reduce_after(slot, slots.sum(0), slots.served);
  }
}

void scatter_between(const TwoLevel& level, int me, Place result, RoundBuilder& round) {
  const HostMap& map = level.map();
  const NeighbourSlots mine(level, me);
  const bool alone = map.host_size(me) == 1;  // then this host's sums are this member's input
  level.for_each_served(me, [&](int q, Index packed) {
    const Place sum = alone ? in_at(level.offset(q)) : mine.sum(packed);
    if (q == me) return round.copy_after(sum, result, level.count(me));
    round.send(q, sum, host_slot(level, q, map.host_of(me)), level.count(q));
  });
  for (int i = 1; i < map.hosts(); ++i) {
    const int host = wrap(map.host_of(me) + i, map.hosts());
    round.receive(map.deputy(me, host), level.count(me));
    round.reduce_after(host_slot(level, me, host), result, level.count(me));
  }
}

std::unique_ptr<Schedule> make_reduce_scatter(const ScheduleInput& input, int rank) {
  const TwoLevel level = TwoLevel::by_rank(input);
  return make_lazy(2, NeighbourSlots(level, rank).end(), [rank, level](int r, RoundBuilder& round) {
    if (r == 0) return scatter_inside(level, rank, round);
    scatter_between(level, rank, out_at(0), round);
  });
}

// The mirror of the gather: sent = M - R inside the host + R - c[me] between hosts; received =
// (L-1) R + (H-1) c[me].
TrafficTotals scatter_traffic(const TwoLevel& level, int rank) {
  const HostMap& map = level.map();
  const Index served = level.served(rank), own = level.count(rank);
  TrafficTotals t;
  t.sent_to_other_hosts = served - own;
  t.sent = level.total() - own;
  t.received = (map.host_size(rank) - 1) * served + (map.hosts() - 1) * own;
  level.for_each_served(rank,
                        [&](int q, Index) { t.messages_sent += q != rank && level.count(q) > 0; });
  for (int i = 1; i < map.host_size(rank); ++i)
    t.messages_sent += static_cast<std::int64_t>(level.runs(map.neighbour(rank, i)).size());
  return t;
}

TrafficTotals reduce_scatter_traffic(const ScheduleInput& input, int rank) {
  return scatter_traffic(TwoLevel::by_rank(input), rank);
}

std::unique_ptr<Schedule> make_all_reduce(const ScheduleInput& input, int rank) {
  const TwoLevel level = TwoLevel::by_rail(input);
  return make_lazy(4, NeighbourSlots(level, rank).end(), [rank, level](int r, RoundBuilder& round) {
    const Place own = out_at(level.offset(rank));
    switch (r) {
      case 0:
        return scatter_inside(level, rank, round);
      case 1:
        return scatter_between(level, rank, own, round);
      case 2:
        return gather_between(level, rank, own, round);
      default:
        return gather_inside(level, rank, round);
    }
  });
}

// Both, on chunks k of M/n in rail order. Between hosts 2(H-1) k per member when even: 2M(H-1)/H
// per host.
TrafficTotals all_reduce_traffic(const ScheduleInput& input, int rank) {
  const TwoLevel level = TwoLevel::by_rail(input);
  return scatter_traffic(level, rank) + gather_traffic(level, rank);
}

}  // namespace

const Family& hierarchical_family() {
  static const Family family = {
      .name = "hierarchical",
      .summary =
          "two levels: each byte crosses between two hosts once, the rest stays inside hosts",
      .all_gather = {make_all_gather, all_gather_traffic},
      .all_reduce = {make_all_reduce, all_reduce_traffic},
      .reduce_scatter = {make_reduce_scatter, reduce_scatter_traffic},
      .broadcast = hierarchical_broadcast(),
      .all_to_all_v = hierarchical_all_to_all_v(),
      .unsuitable = "",
  };
  return family;
}

}  // namespace weft
