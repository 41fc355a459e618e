// Direct: everyone straight to everyone, one round per exchange. Fewest rounds, most peers at once.
// Members start with the peer after them, so that not all send to the same one first.
#include "transports/schedule_builders.hpp"

namespace weft {
namespace {

/// The contribution of `from` to the block of `at`: the first foreign one lands in the result
/// itself, the others in slots of scratch, in rank order.
Place contribution(Place result, Index count, int at, int from) {
  const int index = from < at ? from : from - 1;
  return index == 0 ? result : scratch_at((index - 1) * count);
}

/// Adds up all contributions to `result`, of which the first foreign one lies there already. Every
/// sum is made by one rank, in an order that depends on that rank alone.
void sum_contributions(Place result, Place own, Index count, int me, int n, RoundBuilder& round) {
  round.reduce_after(own, result, count);
  for (int q = 0; q < n; ++q) {
    if (q == me) continue;
    const Place slot = contribution(result, count, me, q);
    if (slot.role == BufferRole::scratch) round.reduce_after(slot, result, count);
  }
}

/// Everyone's block to its owner, where result(rank) is the sum.
template <class Result>
void scatter_round(const Blocks& blocks, const Result& result, int me, RoundBuilder& round) {
  const int n = blocks.size();
  for (int i = 1; i < n; ++i) {
    const int to = wrap(me + i, n);
    const Place place = contribution(result(to), blocks.count(to), to, me);
    round.send(to, in_at(blocks.offset(to)), place, blocks.count(to));
  }
  for (int i = 1; i < n; ++i) round.receive(wrap(me - i, n), blocks.count(me));
  sum_contributions(result(me), in_at(blocks.offset(me)), blocks.count(me), me, n, round);
}

/// Everyone's own block to everyone.
void gather_round(const Blocks& blocks, Place own, int me, RoundBuilder& round) {
  const int n = blocks.size();
  for (int i = 1; i < n; ++i)
    round.send(wrap(me + i, n), own, out_at(blocks.offset(me)), blocks.count(me));
  for (int i = 1; i < n; ++i) {
    const int from = wrap(me - i, n);
    round.receive(from, blocks.count(from));
  }
}

std::unique_ptr<Schedule> make_all_gather(const ScheduleInput& input, int rank) {
  return make_lazy(1, 0, [rank, blocks = Blocks(input.counts)](int, RoundBuilder& round) {
    round.copy_meanwhile(in_at(0), out_at(blocks.offset(rank)), blocks.count(rank));
    gather_round(blocks, in_at(0), rank, round);
  });
}

// The own block to n-1 peers, theirs to here: sent = (n-1) c[me], received = M - c[me]. `far`:
// peers on other hosts.
TrafficTotals gather_traffic(const Blocks& blocks, int rank, int far) {
  const Index own = blocks.count(rank);
  return {(blocks.size() - 1) * own, blocks.total() - own, own > 0 ? blocks.size() - 1 : 0,
          far * own};
}

TrafficTotals all_gather_traffic(const ScheduleInput& input, int rank) {
  return gather_traffic(Blocks(input.counts), rank, members_elsewhere(input, rank));
}

Index slots_of(const Blocks& blocks, int rank) { return (blocks.size() - 2) * blocks.count(rank); }

std::unique_ptr<Schedule> make_reduce_scatter(const ScheduleInput& input, int rank) {
  const Blocks blocks(input.counts);
  return make_lazy(1, slots_of(blocks, rank), [rank, blocks](int, RoundBuilder& round) {
    scatter_round(
        blocks, [](int) { return out_at(0); }, rank, round);
  });
}

// The mirror of the gather: sent = M - c[me], received = (n-1) c[me]; to other hosts the sum of
// their members' blocks.
TrafficTotals scatter_traffic(const ScheduleInput& input, const Blocks& blocks, int rank) {
  const Index own = blocks.count(rank);
  TrafficTotals t{blocks.total() - own, (blocks.size() - 1) * own, blocks.nonzero() - (own > 0), 0};
  for (int q = 0; q < blocks.size(); ++q)
    t.sent_to_other_hosts += same_host(input, q, rank) ? 0 : blocks.count(q);
  return t;
}

TrafficTotals reduce_scatter_traffic(const ScheduleInput& input, int rank) {
  return scatter_traffic(input, Blocks(input.counts), rank);
}

std::unique_ptr<Schedule> make_all_reduce(const ScheduleInput& input, int rank) {
  const Blocks blocks = Blocks::even(count_of(input, 0), input.size);
  return make_lazy(2, slots_of(blocks, rank), [rank, blocks](int r, RoundBuilder& round) {
    const auto result = [&](int q) { return out_at(blocks.offset(q)); };
    if (r == 0) {
      scatter_round(blocks, result, rank, round);
    } else {
      gather_round(blocks, result(rank), rank, round);
    }
  });
}

// Both, on chunks k of M/n: sent = (M - k[me]) + (n-1) k[me], received the same; 2M(n-1)/n when
// even.
TrafficTotals all_reduce_traffic(const ScheduleInput& input, int rank) {
  const Blocks chunks = Blocks::even(count_of(input, 0), input.size);
  return scatter_traffic(input, chunks, rank) +
         gather_traffic(chunks, rank, members_elsewhere(input, rank));
}

/// The whole message to everyone; each adds up all of them, in rank order, so that all get the same
/// bits.
std::unique_ptr<Schedule> make_one_shot(const ScheduleInput& input, int rank) {
  const Index total = count_of(input, 0);
  const int n = input.size;
  return make_lazy(1, (n - 1) * total, [=](int, RoundBuilder& round) {
    const auto slot = [&](int at, int from) {
      return scratch_at((from < at ? from : from - 1) * total);
    };
    for (int i = 1; i < n; ++i)
      round.send(wrap(rank + i, n), in_at(0), slot(wrap(rank + i, n), rank), total);
    for (int i = 1; i < n; ++i) round.receive(wrap(rank - i, n), total);
    for (int q = 0; q < n; ++q) {
      const Place part = q == rank ? in_at(0) : slot(rank, q);
      q == 0 ? round.copy_after(part, out_at(0), total)
             : round.reduce_after(part, out_at(0), total);
    }
  });
}

// sent = received = M(n-1).
TrafficTotals one_shot_traffic(const ScheduleInput& input, int rank) {
  const Index total = count_of(input, 0);
  const Index all = (input.size - 1) * total;
  return {all, all, total > 0 ? input.size - 1 : 0, members_elsewhere(input, rank) * total};
}

std::unique_ptr<Schedule> make_broadcast(const ScheduleInput& input, int rank) {
  const Index total = count_of(input, 0);
  return make_lazy(1, 0, [=, n = input.size, root = input.root](int, RoundBuilder& round) {
    if (rank != root) return round.receive(root, total);
    round.copy_meanwhile(in_at(0), out_at(0), total);
    for (int i = 1; i < n; ++i) round.send(wrap(rank + i, n), in_at(0), out_at(0), total);
  });
}

// The root sends M(n-1), the others receive M.
TrafficTotals broadcast_traffic(const ScheduleInput& input, int rank) {
  if (rank != input.root) return {.sent = 0, .received = count_of(input, 0)};
  TrafficTotals t = one_shot_traffic(input, rank);
  t.received = 0;
  return t;
}

std::unique_ptr<Schedule> make_all_to_all_v(const ScheduleInput& input, int rank) {
  return make_lazy(1, 0, [input, rank](int, RoundBuilder& round) {
    const int n = input.size;
    const auto from = [&](int to) { return in_at(send_offset(input, rank, to)); };
    const auto place = [&](int to) { return out_at(recv_offset(input, rank, to)); };
    round.copy_meanwhile(from(rank), place(rank), cell(input, rank, rank));
    for (int i = 1; i < n; ++i) {
      const int to = wrap(rank + i, n);
      round.send(to, from(to), place(to), cell(input, rank, to));
    }
    for (int i = 1; i < n; ++i)
      round.receive(wrap(rank - i, n), cell(input, wrap(rank - i, n), rank));
  });
}

Family make_direct() {
  return {
      .name = "direct",
      .summary = "everyone straight to everyone, one round; all_reduce in two",
      .all_gather = {make_all_gather, all_gather_traffic},
      .all_reduce = {make_all_reduce, all_reduce_traffic},
      .reduce_scatter = {make_reduce_scatter, reduce_scatter_traffic},
      .broadcast = {make_broadcast, broadcast_traffic},
      .all_to_all_v = {make_all_to_all_v, straight_all_to_all},
      .unsuitable = "",
  };
}

Family make_one_shot_family() {
  Family family = make_direct();
  family.name = "one-shot";
  family.summary = "as direct, but all_reduce in one round of whole messages: for small ones";
  family.all_reduce = {make_one_shot, one_shot_traffic};
  return family;
}

Family make_pull_family() {
  Family family = make_direct();
  family.name = "pull";
  family.summary = "as direct, but receivers fetch: RDMA READ where others take WRITE";
  family.fetched = true;
  return family;
}

}  // namespace

const Family& direct_family() {
  static const Family family = make_direct();
  return family;
}

const Family& one_shot_family() {
  static const Family family = make_one_shot_family();
  return family;
}

const Family& pull_family() {
  static const Family family = make_pull_family();
  return family;
}

}  // namespace weft
