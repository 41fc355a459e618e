#include "transports/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "patterns/error.hpp"
#include "transports/schedule_builders.hpp"

namespace weft {
namespace {

const Entry& entry_of(const Family& family, OperationKind kind) {
  switch (kind) {
    case OperationKind::all_gather:
      return family.all_gather;
    case OperationKind::all_reduce:
      return family.all_reduce;
    case OperationKind::reduce_scatter:
      return family.reduce_scatter;
    case OperationKind::broadcast:
      return family.broadcast;
    case OperationKind::all_to_all_v:
      return family.all_to_all_v;
    case OperationKind::point_to_point:
      break;
  }
  static const Entry none;
  return none;
}

void check_counts(const std::vector<Index>& counts, std::size_t expected, std::string_view what) {
  if (counts.size() != expected)
    fail_usage(fmt::format("{} has {} counts, but needs {}; give one per entry", what,
                           counts.size(), expected));
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] < 0)
      fail_usage(
          fmt::format("{}: count {} is {}; counts must not be negative", what, i, counts[i]));
}

void check_sizes(const ScheduleInput& input) {
  const auto n = static_cast<std::size_t>(input.size);
  switch (input.kind) {
    case OperationKind::all_gather:
      return check_counts(input.counts, n, "all_gather");
    case OperationKind::reduce_scatter:
      return check_counts(input.counts, n, "reduce_scatter");
    case OperationKind::all_reduce:
      return check_counts(input.counts, 1, "all_reduce");
    case OperationKind::broadcast:
      return check_counts(input.counts, 1, "broadcast");
    case OperationKind::all_to_all_v:
      break;
    case OperationKind::point_to_point:
      return;  // unsuitable() says why not
  }
  if (input.matrix.size() != n)
    fail_usage(fmt::format("all_to_all_v has {} rows of counts for {} members; give one each",
                           input.matrix.size(), n));
  for (const auto& row : input.matrix) check_counts(row, n, "a row of all_to_all_v");
}

void check(const ScheduleInput& input, int rank) {
  if (input.size < 1) fail_usage(fmt::format("a group has at least 1 member, not {}", input.size));
  if (rank < 0 || rank >= input.size)
    fail_usage(fmt::format("rank {} is not in a group of {}; use 0 to {}", rank, input.size,
                           input.size - 1));
  if (input.root < 0 || input.root >= input.size)
    fail_usage(fmt::format("root {} is not in a group of {}; use 0 to {}", input.root, input.size,
                           input.size - 1));
  if (!input.hosts.empty() && input.hosts.size() != static_cast<std::size_t>(input.size))
    fail_usage(fmt::format("the host map has {} entries for {} members; give one each or none",
                           input.hosts.size(), input.size));
  check_sizes(input);
}

/// A group of one member: its input is its output.
std::unique_ptr<Schedule> make_alone(const ScheduleInput& input) {
  const Index n = input.kind == OperationKind::all_to_all_v ? cell(input, 0, 0) : input.counts[0];
  return make_lazy(1, 0,
                   [n](int, RoundBuilder& round) { round.copy_before(in_at(0), out_at(0), n); });
}

// Function pointers cannot capture, so each family gets its own instance of these three.
using FamilyOf = const Family& (*)();

template <FamilyOf family>
std::string unsuitable(const ScheduleInput& input) {
  if (input.kind == OperationKind::point_to_point)
    return "point-to-point is not scheduled; put it on the wire straight";
  if (input.size <= 1 || entry_of(family(), input.kind).make != nullptr) return "";
  return std::string(family().unsuitable);
}

template <FamilyOf family>
const Entry& suitable_entry(const ScheduleInput& input, int rank) {
  check(input, rank);
  const Entry& entry = entry_of(family(), input.kind);
  if (const std::string why = unsuitable<family>(input); !why.empty()) fail_usage(why);
  return entry;
}

template <FamilyOf family>
std::unique_ptr<Schedule> make(const ScheduleInput& input, int rank) {
  const Entry& entry = suitable_entry<family>(input, rank);
  return input.size == 1 ? make_alone(input) : entry.make(input, rank);
}

template <FamilyOf family>
TrafficTotals traffic(const ScheduleInput& input, int rank) {
  const Entry& entry = suitable_entry<family>(input, rank);
  return input.size == 1 ? TrafficTotals{} : entry.traffic(input, rank);
}

template <FamilyOf family>
Algorithm algorithm() {
  return {family().name, family().summary, unsuitable<family>,
          make<family>,  traffic<family>,  family().fetched};
}

}  // namespace

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> list = {
      algorithm<ring_family>(),
      algorithm<pipelined_family>(),
      algorithm<direct_family>(),
      algorithm<one_shot_family>(),
      algorithm<pull_family>(),
      algorithm<recursive_family>(),
      algorithm<recursive_doubling_family>(),
      algorithm<hierarchical_family>(),
  };
  return list;
}

const Algorithm& find_algorithm(std::string_view name) {
  std::string known;
  for (const Algorithm& candidate : algorithms()) {
    if (candidate.name == name) return candidate;
    known += known.empty() ? "" : ", ";
    known += candidate.name;
  }
  fail_usage(fmt::format("there is no algorithm '{}'; choose one of {}", name, known));
}

TrafficTotals expand_traffic(const Schedule& schedule, const ScheduleInput& input, int rank) {
  TrafficTotals t;
  for (int r = 0; r < schedule.rounds(); ++r) {
    const Round round = schedule.round(r);
    for (const Transfer& send : round.sends) {
      t.sent += send.elements;
      ++t.messages_sent;
      t.sent_to_other_hosts += same_host(input, send.peer, rank) ? 0 : send.elements;
    }
    for (const Round::Receive& receive : round.receives) t.received += receive.elements;
  }
  return t;
}

}  // namespace weft
