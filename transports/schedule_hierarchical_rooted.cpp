// Two-level broadcast and all_to_all_v.
#include <bit>

#include "transports/schedule_hierarchical.hpp"

namespace weft {
namespace {

// ---- broadcast: a binomial tree over the hosts' leaders, then straight to their
// neighbours

struct Tree {
  Tree(const ScheduleInput& input, int rank)
      : map(input), root(input.root), total(count_of(input, 0)), place(distance(rank)) {}
  int distance(int rank) const {  // of the rank's host from the root's
    return wrap(map.host_of(rank) - map.host_of(root), map.hosts());
  }
  int leader(int distance) const {  // of the host at that distance from the root's
    const int host = wrap(map.host_of(root) + distance, map.hosts());
    return distance == 0 ? root : map.members(host)[0];
  }
  bool leads(int rank) const { return leader(distance(rank)) == rank; }
  int tree_rounds() const { return std::bit_width(static_cast<unsigned>(map.hosts() - 1)); }

  HostMap map;
  int root;
  Index total;
  int place;
};

void tree_round(const Tree& tree, Place from, int r, RoundBuilder& round) {
  const int width = 1 << r, place = tree.place;  // hosts that have the data already
  if (place < width) {
    if (place + width < tree.map.hosts())
      round.send(tree.leader(place + width), from, out_at(0), tree.total);
  } else if (place < 2 * width) {
    round.receive(tree.leader(place - width), tree.total);
  }
}

void spread_round(const Tree& tree, Place from, int rank, RoundBuilder& round) {
  if (!tree.leads(rank)) return round.receive(tree.leader(tree.place), tree.total);
  for (int i = 1; i < tree.map.host_size(rank); ++i)
    round.send(tree.map.neighbour(rank, i), from, out_at(0), tree.total);
}

std::unique_ptr<Schedule> make_broadcast(const ScheduleInput& input, int rank) {
  const Tree tree(input, rank);
  const int rounds = tree.tree_rounds();
  return make_lazy(rounds + 1, 0, [tree, rank, rounds](int r, RoundBuilder& round) {
    const bool is_root = rank == tree.root;
    const Place from = is_root ? in_at(0) : out_at(0);
    if (is_root && r == 0) round.copy_meanwhile(from, out_at(0), tree.total);
    if (r == rounds) return spread_round(tree, from, rank, round);
    if (tree.leads(rank)) tree_round(tree, from, r, round);
  });
}

// A leader sends M to its L-1 neighbours and, at distance d from the root's host, to every host d +
// 2^j < H with 2^j > d; H-1 crossings in all. All but the root receive M.
TrafficTotals broadcast_traffic(const ScheduleInput& input, int rank) {
  const Tree tree(input, rank);
  TrafficTotals t;
  t.received = rank == tree.root ? 0 : tree.total;
  if (!tree.leads(rank)) return t;
  std::int64_t far = 0;
  for (int width = 1; tree.place + width < tree.map.hosts(); width *= 2) far += width > tree.place;
  const std::int64_t near = tree.map.host_size(rank) - 1;
  t.sent = (near + far) * tree.total;
  t.sent_to_other_hosts = far * tree.total;
  t.messages_sent = tree.total > 0 ? near + far : 0;
  return t;
}

// ---- all_to_all_v: 0 inside hosts, 1 between

/// What a host's members have for a member j elsewhere is brought together at j's deputy and
/// crosses from there, in one message where it ends up in one piece, that is where the host's
/// members are neighbours in the group.
struct Exchange {
  Exchange(const ScheduleInput& input_, int rank) : input(input_), map(input_), me(rank) {}

  bool elsewhere(int j) const { return map.host_of(j) != map.host_of(me); }
  Index block(int from, int to) const { return cell(input, from, to); }
  Place source(int to) const { return in_at(send_offset(input, me, to)); }
  Place target(int from, int to) const { return out_at(recv_offset(input, from, to)); }
  /// A host of one member has nothing to bring together.
  bool alone() const { return map.host_size(me) == 1; }
  /// Elements of all members of `host` for j.
  Index gathered(int host, int j) const {
    Index sum = 0;
    for (int m : map.members(host)) sum += block(m, j);
    return sum;
  }
  /// Calls fn(j, offset) for every j elsewhere that `member` (of this host) serves; in its scratch,
  /// the blocks for j start at `offset`, in rank order of their senders. Returns the end.
  template <class Fn>
  Index for_each_served(int member, Fn&& fn) const {
    Index offset = 0;
    for (int j = 0; j < input.size; ++j) {
      if (!elsewhere(j) || !map.serves(member, j)) continue;
      fn(j, offset);
      offset += gathered(map.host_of(me), j);
    }
    return offset;
  }
  /// Calls fn(m, packed, count) for every piece that `host` sends to j: blocks of members m.. that
  /// lie together in j's out.
  template <class Fn>
  void for_each_piece(int host, int j, Fn&& fn) const;

  ScheduleInput input;
  HostMap map;
  int me;
};

template <class Fn>
void Exchange::for_each_piece(int host, int j, Fn&& fn) const {
  Index packed = 0, count = 0;
  int first = -1;
  const auto end_piece = [&] {
    if (count > 0) fn(first, packed - count, count);
    count = 0;
  };
  for (int q = 0; q < input.size; ++q) {
    if (block(q, j) == 0) continue;
    if (map.host_of(q) != host) {
      end_piece();
      continue;
    }
    if (count == 0) first = q;
    count += block(q, j);
    packed += block(q, j);
  }
  end_piece();
}

/// Brings this member's block for j to the neighbour that serves j (`at` in its scratch), or leaves
/// it for the next round.
void bring(const Exchange& x, int server, int j, Index at, RoundBuilder& round) {
  for (int m : x.map.neighbours(x.me)) {
    if (m == x.me) break;
    at += x.block(m, j);
  }
  if (server != x.me) {
    round.send(server, x.source(j), scratch_at(at), x.block(x.me, j));
  } else if (!x.alone()) {
    round.copy_meanwhile(x.source(j), scratch_at(at), x.block(x.me, j));
  }
}

void exchange_inside(const Exchange& x, RoundBuilder& round) {
  const auto bring_to = [&](int server) {
    x.for_each_served(server, [&](int j, Index at) { bring(x, server, j, at, round); });
  };
  round.copy_meanwhile(x.source(x.me), x.target(x.me, x.me), x.block(x.me, x.me));
  bring_to(x.me);
  for (int i = 1; i < x.map.host_size(x.me); ++i) {
    const int peer = x.map.neighbour(x.me, i);
    round.send(peer, x.source(peer), x.target(x.me, peer), x.block(x.me, peer));
    bring_to(peer);
    round.receive(peer, x.block(peer, x.me));
    x.for_each_served(x.me, [&](int j, Index) { round.receive(peer, x.block(peer, j)); });
  }
}

void exchange_between(const Exchange& x, RoundBuilder& round) {
  const int own = x.map.host_of(x.me);
  x.for_each_served(x.me, [&](int j, Index at) {
    x.for_each_piece(own, j, [&](int first, Index packed, Index count) {
      const Place from = x.alone() ? x.source(j) : scratch_at(at + packed);
      round.send(j, from, x.target(first, j), count);
    });
  });
  for (int i = 1; i < x.map.hosts(); ++i) {
    const int host = wrap(own + i, x.map.hosts());
    x.for_each_piece(host, x.me, [&](int, Index, Index count) {
      round.receive(x.map.deputy(x.me, host), count);
    });
  }
}

std::unique_ptr<Schedule> make_all_to_all_v(const ScheduleInput& input, int rank) {
  Exchange x(input, rank);
  const Index scratch = x.alone() ? 0 : x.for_each_served(rank, [](int, Index) {});
  return make_lazy(2, scratch, [x = std::move(x)](int r, RoundBuilder& round) {
    r == 0 ? exchange_inside(x, round) : exchange_between(x, round);
  });
}

// Inside: the blocks for neighbours, and those for members elsewhere that a neighbour serves;
// between: for each j elsewhere that this member serves, what all of the host have for j. Each byte
// crosses between hosts once.
TrafficTotals all_to_all_v_traffic(const ScheduleInput& input, int rank) {
  const Exchange x(input, rank);
  TrafficTotals t;
  for (int j = 0; j < input.size; ++j) {
    const bool served = x.elsewhere(j) && x.map.serves(rank, j);
    const bool straight = j != rank && !served;
    t.sent += straight ? x.block(rank, j) : 0;
    t.messages_sent += straight && x.block(rank, j) > 0;
    t.received += j == rank ? 0 : x.block(j, rank);
    if (!served) continue;
    const Index all = x.gathered(x.map.host_of(rank), j);
    t.sent_to_other_hosts += all;
    t.received += all - x.block(rank, j);
    x.for_each_piece(x.map.host_of(rank), j, [&](int, Index, Index) { ++t.messages_sent; });
  }
  t.sent += t.sent_to_other_hosts;
  return t;
}

}  // namespace

Entry hierarchical_broadcast() { return {make_broadcast, broadcast_traffic}; }
Entry hierarchical_all_to_all_v() { return {make_all_to_all_v, all_to_all_v_traffic}; }

}  // namespace weft
