#include "transports/scheduled_match.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "patterns/error.hpp"

namespace weft {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Of one pair in one operation. What two ranks send each other without credits must fit into what
// a wire keeps (verbs: 8 slots at least), or each would wait for the other to take some out.
constexpr std::size_t kMostUncredited = 4;

std::string kind_text(const OperationRecord& r) {
  return fmt::format("{} of {}{}", to_string(r.kind), to_string(r.dtype),
                     r.row_elements > 0 ? " with run-time counts" : "");
}

/// What two members' records of one collective disagree on; empty: nothing.
std::string difference(const OperationRecord& a, const OperationRecord& b, int index_a,
                       int index_b) {
  if (a.kind != b.kind || a.dtype != b.dtype || (a.row_elements > 0) != (b.row_elements > 0)) {
    return fmt::format("{} against {}", kind_text(a), kind_text(b));
  }
  if (a.row_elements != b.row_elements) {
    return fmt::format("rows of {} against {} elements", a.row_elements, b.row_elements);
  }
  if (a.kind == OperationKind::broadcast && a.root != b.root) {
    return fmt::format("root {} against {}", a.root, b.root);
  }
  if (a.kind == OperationKind::all_to_all_v) {
    if (a.row_elements > 0) return {};
    const Index sent = a.counts[at(index_b)], expected = b.recv_counts[at(index_a)];
    const Index back = b.counts[at(index_a)], awaited = a.recv_counts[at(index_b)];
    if (sent != expected)
      return fmt::format("sends {} elements against expects {}", sent, expected);
    return back == awaited ? ""
                           : fmt::format("expects {} elements against sends {}", awaited, back);
  }
  if (a.elements != b.elements)
    return fmt::format("{} against {} elements", a.elements, b.elements);
  if (a.counts != b.counts) return fmt::format("counts {} against {}", a.counts, b.counts);
  return {};
}

}  // namespace

std::string to_string(const CommKey& key) {
  return fmt::format("{} group {{{}}}", to_string(key.dim), fmt::join(key.ranks, ","));
}

GroupMatch::GroupMatch(CommKey key)
    : key_(std::move(key)),
      collectives_(key_.ranks.size()),
      points_(key_.ranks.size()),
      control_(key_.ranks.size(), 0) {}

void GroupMatch::add(Rank rank, const CommRecord& record) {
  const auto found = std::find(key_.ranks.begin(), key_.ranks.end(), rank);
  const auto member = static_cast<std::size_t>(found - key_.ranks.begin());
  control_[member] = record.control;
  for (const OperationRecord& operation : record.operations) {
    const bool point = operation.kind == OperationKind::point_to_point;
    (point ? points_ : collectives_)[member].push_back(&operation);
  }
}

Matched GroupMatch::collective(std::size_t k) const {
  Matched matched;
  for (const auto& member : collectives_) matched.push_back(member[k]);
  return matched;
}

void GroupMatch::check_collective(std::size_t k) const {
  const int n = static_cast<int>(key_.ranks.size());
  for (int a = 0; a < n; ++a) {
    // Agreement is transitive but for all_to_all_v, where each pair has a count of its own.
    const bool pairwise = collectives_[at(a)][k]->kind == OperationKind::all_to_all_v;
    for (int b = a + 1; b < n && (a == 0 || pairwise); ++b) {
      const OperationRecord &mine = *collectives_[at(a)][k], &other = *collectives_[at(b)][k];
      const std::string why = difference(mine, other, a, b);
      if (why.empty()) continue;
      fail_usage(fmt::format(
          "collective {} of the {} differs: rank {} ('{}') against rank {} ('{}'): {}; "
          "members must prepare the same operations in the same order",
          k, to_string(key_), key_.ranks[at(a)], mine.label, key_.ranks[at(b)], other.label, why));
    }
  }
}

std::vector<GroupMatch::Point> GroupMatch::points(int member, bool send, int peer) const {
  std::vector<Point> found;
  const auto& operations = points_[at(member)];
  for (std::size_t k = 0; k < operations.size(); ++k) {
    for (const PointRecord& m : operations[k]->members) {
      if (m.send == send && m.peer == peer) found.push_back({m, k});
    }
  }
  return found;
}

std::vector<PointRecord> GroupMatch::sends(int from, int to) const {
  std::vector<PointRecord> records;
  for (const Point& point : points(from, true, to)) records.push_back(point.record);
  return records;
}
std::vector<PointRecord> GroupMatch::receives(int to, int from) const {
  std::vector<PointRecord> records;
  for (const Point& point : points(to, false, from)) records.push_back(point.record);
  return records;
}

std::vector<GroupMatch::Leave> GroupMatch::leaves(int from, int to, Bytes uncredited) const {
  const auto sent = points(from, true, to), received = points(to, false, from);
  std::vector<Leave> leaves(sent.size());
  for (std::size_t first = 0; first < sent.size();) {
    std::size_t end = first;
    Bytes largest = 0;
    while (end < sent.size() && sent[end].operation == sent[first].operation &&
           received[end].operation == received[first].operation) {
      largest = std::max(largest, sent[end++].record.bytes);
    }
    const bool free = largest <= uncredited && end - first <= kMostUncredited;
    for (std::size_t k = first; k < end; ++k) leaves[k] = {!free && k == first, !free};
    first = end;
  }
  return leaves;
}

void GroupMatch::check_pair(int from, int to) const {
  const auto sent = sends(from, to), received = receives(to, from);
  const Rank source = key_.ranks[at(from)], destination = key_.ranks[at(to)];
  if (sent.size() != received.size()) {
    fail_usage(
        fmt::format("in the {} rank {} sends {} messages to rank {}, which receives {}; every send "
                    "needs its receive",
                    to_string(key_), source, sent.size(), destination, received.size()));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].bytes == received[i].bytes) continue;
    fail_usage(
        fmt::format("message {} from rank {} to rank {} in the {} is {} bytes at its sender and {} "
                    "at its receiver",
                    i, source, destination, to_string(key_), sent[i].bytes, received[i].bytes));
  }
}

void GroupMatch::check() const {
  const int n = static_cast<int>(key_.ranks.size());
  for (int m = 1; m < n; ++m) {
    if (collectives_[at(m)].size() == collectives_[0].size()) continue;
    fail_usage(fmt::format(
        "rank {} has prepared {} collectives in the {}, rank {} {}; members must prepare "
        "the same operations",
        key_.ranks[0], collectives_[0].size(), to_string(key_), key_.ranks[at(m)],
        collectives_[at(m)].size()));
  }
  for (std::size_t k = 0; k < collectives(); ++k) check_collective(k);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (to != from) check_pair(from, to);
    }
  }
}

std::map<CommKey, GroupMatch> match_groups(const std::vector<RankRecord>& records) {
  std::map<CommKey, GroupMatch> groups;
  for (std::size_t r = 0; r < records.size(); ++r) {
    for (const CommRecord& comm : records[r].comms) {
      const CommKey key{comm.dim, comm.ranks};
      groups.try_emplace(key, key).first->second.add(static_cast<Rank>(r), comm);
    }
  }
  return groups;
}

ScheduleInput schedule_input(const Matched& matched, std::vector<int> hosts) {
  const OperationRecord& first = *matched.front();
  ScheduleInput input{.kind = first.kind,
                      .size = static_cast<int>(matched.size()),
                      .counts = first.counts,
                      .matrix = {},
                      .root = first.root,
                      .hosts = std::move(hosts)};
  if (first.kind == OperationKind::all_reduce || first.kind == OperationKind::broadcast) {
    input.counts = {first.elements};
  }
  if (first.kind == OperationKind::all_to_all_v) {
    input.counts.clear();
    for (const OperationRecord* record : matched) input.matrix.push_back(record->counts);
  }
  return input;
}

void assign_ids(const std::map<CommKey, GroupMatch>& groups, CommId limit,
                std::map<CommKey, CommId>& ids) {
  std::map<Rank, std::set<CommId>> taken;
  for (const auto& [key, id] : ids) {
    for (const Rank rank : key.ranks) {
      if (key.ranks.size() > 1) taken[rank].insert(id);
    }
  }
  for (const auto& [key, group] : groups) {
    if (ids.contains(key)) continue;
    CommId id = 0;
    const auto used = [&](Rank rank) { return taken[rank].contains(id); };
    while (key.ranks.size() > 1 && std::any_of(key.ranks.begin(), key.ranks.end(), used)) ++id;
    if (id >= limit) {
      fail_usage(fmt::format("the {} would be communicator {} of a rank; this transport has {}",
                             to_string(key), id + 1, limit));
    }
    ids[key] = id;
    if (key.ranks.size() == 1) continue;
    for (const Rank rank : key.ranks) taken[rank].insert(id);
  }
}

}  // namespace weft
