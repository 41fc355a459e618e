#include "patterns/validate_match.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "patterns/program_text.hpp"

namespace weft {

std::vector<Posted> WorldMatch::enter(Posted who, const Collective& op) {
  Comm& comm = comms_[comm_of(who, op.group)];
  const Entered mine{.who = who, .op = &op, .index = index_in(comm, who)};
  for (const Entered& other : comm.entered) {
    if (other.who.rank != who.rank) continue;
    fail_usage(fmt::format(
        "{} enters {} while it is still in {}; order both steps with `after`, or put them on one "
        "stream, so that all ranks enter them in one order",
        where_(who), group_text(comm.group), where_(other.who)));
  }
  check_own_part(comm, mine);
  if (!comm.entered.empty()) check_alike(comm, comm.entered.front(), mine);
  comm.entered.push_back(mine);
  if (static_cast<int>(comm.entered.size()) < comm.group.ranks.size()) return {};
  if (op.kind == CollectiveKind::all_to_all_v && !op.run_time) check_exchange(comm);
  std::vector<Posted> done;
  for (const Entered& entered : comm.entered) done.push_back(entered.who);
  comm.entered.clear();
  return done;
}

std::vector<Posted> WorldMatch::post(Posted who, const SendRecv& op) {
  const std::size_t id = comm_of(who, op.group);
  const Comm& comm = comms_[id];
  const int me = index_in(comm, who);
  if (op.peer == me) {
    fail_usage(fmt::format("{} exchanges a message with itself (member {} of {}); copy instead",
                           where_(who), me, group_text(comm.group)));
  }
  const Rank peer = comm.group.ranks.at(op.peer);
  Channel& channel =
      channels_[op.send ? ChannelKey{id, who.rank, peer} : ChannelKey{id, peer, who.rank}];
  (op.send ? channel.sends : channel.recvs)
      .push_back(
          {.who = who, .elements = op.data.elements(), .dtype = dtype_of(who.rank, op.data)});
  if (channel.sends.empty() || channel.recvs.empty()) return {};
  const Message send = channel.sends.front(), recv = channel.recvs.front();
  check_message(comm, send, recv);
  channel.sends.pop_front();
  channel.recvs.pop_front();
  return {send.who, recv.who};
}

std::size_t WorldMatch::comm_of(Posted who, GroupId id) {
  const Group& group =
      programs_[static_cast<std::size_t>(who.rank)].groups[static_cast<std::size_t>(id)];
  std::vector<int> axes;
  for (const RankSet::Axis& axis : group.ranks.axes)
    axes.insert(axes.end(), {axis.count, axis.stride});
  const auto [found, is_new] =
      ids_.try_emplace({group.dim, group.ranks.base, std::move(axes)}, comms_.size());
  if (is_new) {
    const Rank last = group.ranks.at(group.ranks.size() - 1);
    if (last >= static_cast<Rank>(programs_.size())) {
      fail_usage(fmt::format("{} uses {}, but the world has {} ranks", where_(who),
                             group_text(group), programs_.size()));
    }
    comms_.push_back({.group = group, .entered = {}});
  }
  return found->second;
}

int WorldMatch::index_in(const Comm& comm, Posted who) const {
  const int index = comm.group.ranks.index_of(who.rank);
  if (index < 0) {
    fail_usage(fmt::format("{} communicates in {}, of which it is no member", where_(who),
                           group_text(comm.group)));
  }
  return index;
}

DType WorldMatch::dtype_of(Rank rank, const View& view) const {
  return programs_[static_cast<std::size_t>(rank)]
      .tensors[static_cast<std::size_t>(view.tensor)]
      .dtype;
}

void WorldMatch::disagree(const Comm& comm, Posted a, Posted b, const std::string& what) const {
  fail_usage(
      fmt::format("{} and {} meet in {} but disagree: {}; make both ranks' steps the same "
                  "operation of the same "
                  "size in the same order",
                  where_(a), where_(b), group_text(comm.group), what));
}

namespace {

/// What members of one collective must have in common, as numbers.
Index common_elements(const Collective& op) {
  switch (op.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      return op.out.elements();
    case CollectiveKind::reduce_scatter:
      return op.in.elements();
    case CollectiveKind::all_to_all_v:
      return op.run_time ? op.run_time->row_elements : 0;
  }
  return 0;
}

/// The first entry in which two lists of equal length differ.
std::size_t first_difference(const std::vector<Index>& a, const std::vector<Index>& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

void WorldMatch::check_alike(const Comm& comm, const Entered& a, const Entered& b) const {
  const Collective &x = *a.op, &y = *b.op;
  const auto require = [&](bool ok, auto&& what) {
    if (!ok) disagree(comm, a.who, b.who, what());
  };
  require(x.kind == y.kind,
          [&] { return fmt::format("{} against {}", to_string(x.kind), to_string(y.kind)); });
  const DType dx = dtype_of(a.who.rank, x.out), dy = dtype_of(b.who.rank, y.out);
  require(dx == dy, [&] { return fmt::format("{} against {}", to_string(dx), to_string(dy)); });
  require(x.root == y.root, [&] { return fmt::format("root {} against root {}", x.root, y.root); });
  require(x.run_time.has_value() == y.run_time.has_value(),
          [] { return std::string("counts at run time against fixed counts"); });
  require(!x.run_time || x.run_time->per_peer == y.run_time->per_peer, [&] {
    return fmt::format("{} counts per peer against {}", x.run_time->per_peer, y.run_time->per_peer);
  });
  require(common_elements(x) == common_elements(y), [&] {
    return fmt::format("{} elements against {}", common_elements(x), common_elements(y));
  });
  require(x.kind == CollectiveKind::all_to_all_v || x.counts == y.counts, [&] {
    const std::size_t i = first_difference(x.counts, y.counts);
    return fmt::format("member {} contributes {} elements against {}", i, x.counts.at(i),
                       y.counts.at(i));
  });
}

void WorldMatch::check_own_part(const Comm& comm, const Entered& entered) const {
  const Collective& op = *entered.op;
  const auto mine = static_cast<std::size_t>(entered.index);
  const auto require = [&](bool ok, std::string_view name, Index elements, Index expected) {
    if (ok) return;
    fail_usage(fmt::format(
        "{}: {} of its {} has {} elements, but it is member {} of {} and its count is {}",
        where_(entered.who), name, to_string(op.kind), elements, mine, group_text(comm.group),
        expected));
  };
  if (op.kind == CollectiveKind::all_gather) {
    require(op.in.elements() == op.counts[mine], "in", op.in.elements(), op.counts[mine]);
  } else if (op.kind == CollectiveKind::reduce_scatter) {
    require(op.out.elements() == op.counts[mine], "out", op.out.elements(), op.counts[mine]);
  } else if (op.kind == CollectiveKind::broadcast && op.root == entered.index) {
    require(op.in.tensor >= 0, "in", 0, op.out.elements());
  }
}

void WorldMatch::check_exchange(const Comm& comm) const {
  for (const Entered& from : comm.entered) {
    for (const Entered& to : comm.entered) {
      const Index sent = from.op->counts[static_cast<std::size_t>(to.index)];
      const Index expected = to.op->recv_counts[static_cast<std::size_t>(from.index)];
      if (sent == expected) continue;
      disagree(comm, from.who, to.who,
               fmt::format("rank {} sends {} elements to rank {}, which expects {}", from.who.rank,
                           sent, to.who.rank, expected));
    }
  }
}

void WorldMatch::check_message(const Comm& comm, const Message& send, const Message& recv) const {
  if (send.elements == recv.elements && send.dtype == recv.dtype) return;
  disagree(comm, send.who, recv.who,
           fmt::format("{} elements of {} are sent, {} of {} expected", send.elements,
                       to_string(send.dtype), recv.elements, to_string(recv.dtype)));
}

Blocked WorldMatch::describe(const Comm& comm, const Entered& entered) const {
  Blocked blocked{
      .who = entered.who,
      .what = fmt::format("{} over {}", to_string(entered.op->kind), group_text(comm.group)),
      .awaited = {}};
  for (Rank rank : comm.group.ranks.members()) {
    const bool here = std::any_of(comm.entered.begin(), comm.entered.end(),
                                  [rank](const Entered& other) { return other.who.rank == rank; });
    if (!here) blocked.awaited.push_back(rank);
  }
  return blocked;
}

std::vector<Blocked> WorldMatch::blocked() const {
  std::vector<Blocked> all;
  for (const Comm& comm : comms_) {
    for (const Entered& entered : comm.entered) all.push_back(describe(comm, entered));
  }
  for (const auto& [key, channel] : channels_) {
    const auto [comm, from, to] = key;
    for (const Message& send : channel.sends) {
      all.push_back({.who = send.who, .what = fmt::format("send to rank {}", to), .awaited = {to}});
    }
    for (const Message& recv : channel.recvs) {
      all.push_back(
          {.who = recv.who, .what = fmt::format("recv from rank {}", from), .awaited = {from}});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Blocked& a, const Blocked& b) { return a.who.rank < b.who.rank; });
  return all;
}

}  // namespace weft
