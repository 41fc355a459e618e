// Every algorithm, operation, group size, count vector and host map is played on the machine of
// schedule_machine.hpp and compared with the definition of the operation.
#include "transports/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "patterns/error.hpp"
#include "tests/schedule_inputs.hpp"
#include "tests/schedule_machine.hpp"

namespace weft {
namespace {

constexpr OperationKind kKinds[] = {OperationKind::all_gather, OperationKind::all_reduce,
                                    OperationKind::reduce_scatter, OperationKind::broadcast,
                                    OperationKind::all_to_all_v};

std::int64_t value_at(int rank, Index i) { return (rank + 1) * 1000 + i * 7 % 991; }

/// What the operation's definition says, straight from the inputs.
struct Definition {
  const ScheduleInput& input;
  int n = input.size;

  Index column(int to, int from_end) const {
    Index sum = 0;
    for (int q = 0; q < from_end; ++q)
      sum += input.matrix[static_cast<std::size_t>(q)][static_cast<std::size_t>(to)];
    return sum;
  }
  Index row(int from, int to_end) const {
    return sum_of(input.matrix[static_cast<std::size_t>(from)], to_end);
  }
  Index in_size(int rank) const {
    switch (input.kind) {
      case OperationKind::all_gather:
        return input.counts[static_cast<std::size_t>(rank)];
      case OperationKind::reduce_scatter:
        return sum_of(input.counts, n);
      case OperationKind::broadcast:
        return rank == input.root ? input.counts[0] : 0;
      case OperationKind::all_to_all_v:
        return row(rank, n);
      default:
        return input.counts[0];
    }
  }
  Index out_size(int rank) const {
    switch (input.kind) {
      case OperationKind::all_gather:
        return sum_of(input.counts, n);
      case OperationKind::reduce_scatter:
        return input.counts[static_cast<std::size_t>(rank)];
      case OperationKind::all_to_all_v:
        return column(rank, n);
      default:
        return input.counts[0];
    }
  }
  std::vector<std::int64_t> out(int rank) const {
    std::vector<std::int64_t> result;
    const auto append = [&](int source, Index offset, Index count) {
      for (Index i = 0; i < count; ++i) result.push_back(value_at(source, offset + i));
    };
    const auto append_sums = [&](Index offset, Index count) {
      for (Index i = 0; i < count; ++i) {
        result.push_back(0);
        for (int q = 0; q < n; ++q) result.back() += value_at(q, offset + i);
      }
    };
    switch (input.kind) {
      case OperationKind::all_gather:
        for (int q = 0; q < n; ++q) append(q, 0, in_size(q));
        break;
      case OperationKind::all_reduce:
        append_sums(0, input.counts[0]);
        break;
      case OperationKind::reduce_scatter:
        append_sums(sum_of(input.counts, rank), out_size(rank));
        break;
      case OperationKind::broadcast:
        append(input.root, 0, input.counts[0]);
        break;
      default:
        for (int q = 0; q < n; ++q) append(q, row(q, rank), row(q, rank + 1) - row(q, rank));
    }
    return result;
  }
};

void check_results(const ScheduleInput& input, const ScheduleMachine& machine) {
  const Definition definition{input};
  for (int r = 0; r < input.size; ++r) {
    const std::vector<std::int64_t> expected = definition.out(r);
    ASSERT_EQ(expected.size(), machine.out(r).size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(machine.out(r)[i].value, expected[i]) << "rank " << r << " element " << i;
      if (input.kind != OperationKind::all_reduce) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(machine.out(r)[i].real),
                std::bit_cast<std::uint32_t>(machine.out(0)[i].real))
          << "rank " << r << " and rank 0 differ in the last bits of element " << i;
    }
  }
}

void check(const Algorithm& algorithm, const ScheduleInput& input, unsigned seed) {
  const Definition definition{input};
  std::vector<std::unique_ptr<Schedule>> schedules;
  std::vector<Index> in_sizes, out_sizes;
  Index sent = 0, received = 0;
  for (int r = 0; r < input.size; ++r) {
    schedules.push_back(algorithm.make(input, r));
    in_sizes.push_back(definition.in_size(r));
    out_sizes.push_back(definition.out_size(r));
    const TrafficTotals closed = algorithm.traffic(input, r);
    const TrafficTotals expanded = expand_traffic(*schedules.back(), input, r);
    ASSERT_EQ(closed.sent, expanded.sent) << "rank " << r;
    ASSERT_EQ(closed.received, expanded.received) << "rank " << r;
    ASSERT_EQ(closed.messages_sent, expanded.messages_sent) << "rank " << r;
    ASSERT_EQ(closed.sent_to_other_hosts, expanded.sent_to_other_hosts) << "rank " << r;
    sent += closed.sent;
    received += closed.received;
  }
  ASSERT_EQ(sent, received);
  ScheduleMachine machine(std::move(schedules), in_sizes, out_sizes, value_at, seed);
  try {
    machine.play();
  } catch (const ScheduleFault& fault) {
    FAIL() << fault.what();
  }
  check_results(input, machine);
}

/// Host maps: all on one, hosts of 1, 2, 3, 4 neighbours, interleaved, and hosts of unequal sizes
/// with gaps in their names.
std::vector<std::vector<int>> host_maps(int n) {
  std::vector<std::vector<int>> maps(8);
  for (int i = 0; i < n; ++i) {
    maps[0].push_back(0);
    for (int size = 1; size <= 4; ++size) maps[static_cast<std::size_t>(size)].push_back(i / size);
    maps[5].push_back(i % 2);
    maps[6].push_back(i % 3 + 5);
    maps[7].push_back(i % 5 < 3 ? 9 : i % 5);
  }
  return maps;
}

std::string describe(const ScheduleInput& input, Counts shape) {
  std::ostringstream text;
  text << "size " << input.size << " counts " << static_cast<int>(shape) << " hosts";
  for (int host : input.hosts) text << ' ' << host;
  return text.str();
}

class EveryAlgorithm : public testing::TestWithParam<std::tuple<std::string_view, OperationKind>> {
 protected:
  void check_size(int n, const std::vector<std::vector<int>>& maps) {
    const auto [name, kind] = GetParam();
    const Algorithm& algorithm = find_algorithm(name);
    unsigned seed = 1;
    for (Counts shape : {Counts::even, Counts::uneven, Counts::zeros}) {
      for (const std::vector<int>& hosts : maps) {
        const ScheduleInput input = make_input(kind, n, shape, hosts);
        if (!algorithm.unsuitable(input).empty()) continue;
        SCOPED_TRACE(describe(input, shape));
        check(algorithm, input, seed++);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(EveryAlgorithm, IsRightForSmallGroups) {
  for (int n = 1; n <= 9 && !HasFatalFailure(); ++n) check_size(n, host_maps(n));
}

TEST_P(EveryAlgorithm, IsRightForLargerGroups) {
  for (int n : {16, 17}) {
    if (HasFatalFailure()) return;
    const auto maps = host_maps(n);
    check_size(n, {{}, maps[4], maps[7]});
  }
}

TEST_P(EveryAlgorithm, IsRightForSixtyFour) {
  const auto [name, kind] = GetParam();
  if (kind == OperationKind::all_to_all_v)
    return;  // 64 x 64 blocks: the size is covered by the others
  const ScheduleInput input = make_input(kind, 64, Counts::uneven, host_maps(64)[3]);
  check(find_algorithm(name), input, 1);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryAlgorithm,
                         testing::Combine(testing::Values("ring", "pipelined", "direct", "one-shot",
                                                          "pull", "recursive", "recursive-doubling",
                                                          "hierarchical"),
                                          testing::ValuesIn(kKinds)),
                         [](const auto& info) {
                           std::string name(std::get<0>(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::string(to_string(std::get<1>(info.param)));
                         });

TEST(Schedule, ListsAllAlgorithms) {
  ASSERT_EQ(algorithms().size(), 8u);
  EXPECT_EQ(algorithms().front().name, "ring");
  for (const Algorithm& algorithm : algorithms()) EXPECT_FALSE(algorithm.summary.empty());
  try {
    find_algorithm("tree");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("hierarchical"), std::string::npos);
  }
}

TEST(Schedule, SaysWhatIsUnsuitable) {
  const ScheduleInput exchange = make_input(OperationKind::all_to_all_v, 4, Counts::even, {});
  for (const Algorithm& algorithm : algorithms()) {
    const bool recursive = algorithm.name.starts_with("recursive");
    EXPECT_EQ(algorithm.unsuitable(exchange).empty(), !recursive) << algorithm.name;
    EXPECT_EQ(algorithm.unsuitable(make_input(OperationKind::all_reduce, 4, Counts::even, {})), "");
    ScheduleInput alone = make_input(OperationKind::point_to_point, 1, Counts::even, {});
    EXPECT_NE(algorithm.unsuitable(alone), "");
    EXPECT_THROW(algorithm.make(alone, 0), Error);
  }
  EXPECT_THROW(find_algorithm("recursive").make(exchange, 0), Error);
  EXPECT_THROW(find_algorithm("recursive").traffic(exchange, 0), Error);
}

TEST(Schedule, RejectsWhatDoesNotFit) {
  const Algorithm& ring = find_algorithm("ring");
  const ScheduleInput good = make_input(OperationKind::all_gather, 3, Counts::even, {0, 0, 1});
  EXPECT_NO_THROW(ring.make(good, 2));
  EXPECT_THROW(ring.make(good, 3), Error);
  EXPECT_THROW(ring.make(good, -1), Error);
  ScheduleInput bad = good;
  bad.counts.pop_back();
  EXPECT_THROW(ring.make(bad, 0), Error);
  bad = good;
  bad.counts[1] = -1;
  EXPECT_THROW(ring.traffic(bad, 0), Error);
  bad = good;
  bad.hosts = {0};
  EXPECT_THROW(ring.make(bad, 0), Error);
  bad = good;
  bad.root = 3;
  EXPECT_THROW(ring.make(bad, 0), Error);
  bad = make_input(OperationKind::all_to_all_v, 3, Counts::even, {});
  bad.matrix[1].pop_back();
  EXPECT_THROW(ring.make(bad, 0), Error);
}

TEST(Schedule, HasTheRoundsItsNamePromises) {
  const auto rounds = [](std::string_view name, OperationKind kind, int n) {
    return find_algorithm(name).make(make_input(kind, n, Counts::even, {}), 0)->rounds();
  };
  EXPECT_EQ(rounds("ring", OperationKind::all_gather, 6), 5);
  EXPECT_EQ(rounds("ring", OperationKind::all_reduce, 6), 10);
  EXPECT_EQ(rounds("direct", OperationKind::all_reduce, 6), 2);
  EXPECT_EQ(rounds("one-shot", OperationKind::all_reduce, 6), 1);
  EXPECT_EQ(rounds("recursive", OperationKind::all_gather, 8), 3);
  EXPECT_EQ(rounds("recursive", OperationKind::all_gather, 6), 4);  // fold, 2, unfold
  EXPECT_EQ(rounds("recursive", OperationKind::all_reduce, 8), 6);
  EXPECT_EQ(rounds("recursive-doubling", OperationKind::all_reduce, 8), 3);
  EXPECT_EQ(rounds("recursive", OperationKind::broadcast, 9), 4);
}

TEST(Schedule, LongBroadcastIsPipelined) {
  ScheduleInput input = make_input(OperationKind::broadcast, 3, Counts::even, {});
  input.counts = {131073};  // three segments of 64 Ki elements at most
  EXPECT_EQ(find_algorithm("ring").make(input, 0)->rounds(), 4);
  EXPECT_EQ(find_algorithm("ring").traffic(input, 2), (TrafficTotals{131073, 0, 3, 0}));
  check(find_algorithm("ring"), input, 1);
}

// A piece is sent on in the round after the one that it came in, while the next one comes.
TEST(Schedule, PipelinedSendsPiecesOn) {
  const Algorithm& pipelined = find_algorithm("pipelined");
  ScheduleInput input = make_input(OperationKind::reduce_scatter, 4, Counts::even, {});
  input.counts = {20000, 0, 8192, 30000};  // pieces: 3, 1 (empty), 1, 4
  check(pipelined, input, 1);
  EXPECT_EQ(pipelined.traffic(input, 1).messages_sent, 3 + 1 + 4);
  input.kind = OperationKind::all_gather;
  check(pipelined, input, 2);
  input = make_input(OperationKind::all_reduce, 3, Counts::even, {});
  input.counts = {61234};
  check(pipelined, input, 3);
  const auto schedule = pipelined.make(input, 0);  // blocks of 20412, 20411, 20411: 3 pieces each
  EXPECT_EQ(schedule->rounds(), 3 * 2 * 2);
  EXPECT_EQ(schedule->round(0).sends.size(), 3u);
  for (int r = 1; r < schedule->rounds(); ++r) {
    EXPECT_EQ(schedule->round(r).sends.size(), r <= 3 * 3 ? 1u : 0u) << r;
    EXPECT_EQ(schedule->round(r).receives.size(), 1u) << r;
    EXPECT_EQ(schedule->round(r).after.size(), r < 3 * 2 ? 1u : 0u) << r;
  }
}

// Halves of 30617 elements come in 4 pieces, quarters in 2; each is added up in the round it came
// in.
TEST(Schedule, HalvingAddsUpPiecesAsTheyCome) {
  const Algorithm& recursive = find_algorithm("recursive");
  ScheduleInput input = make_input(OperationKind::all_reduce, 4, Counts::even, {});
  input.counts = {61234};
  check(recursive, input, 1);
  EXPECT_EQ(recursive.traffic(input, 1).messages_sent, 4 + 2 + 1 + 1);
  const auto schedule = recursive.make(input, 0);
  ASSERT_EQ(schedule->rounds(), 4 + 2 + 2);
  for (int r = 0; r < 8; ++r) {
    const std::size_t sends[] = {4, 0, 0, 0, 2, 0, 1, 1};
    EXPECT_EQ(schedule->round(r).sends.size(), sends[r]) << r;
    EXPECT_EQ(schedule->round(r).receives.size(), 1u) << r;
    EXPECT_EQ(schedule->round(r).after.size(), r < 6 ? 1u : 0u) << r;
  }
  input = make_input(OperationKind::reduce_scatter, 6, Counts::even, {});
  input.counts = {20000, 0, 8192, 30000, 1, 9000};
  check(recursive, input, 1);
}

TEST(Schedule, MakesRoundsOfLargeGroupsOneAtATime) {
  const int n = 100000;
  ScheduleInput input;
  input.size = n;
  for (int i = 0; i < n; ++i) input.hosts.push_back(i / 8);
  for (OperationKind kind : {OperationKind::all_gather, OperationKind::reduce_scatter,
                             OperationKind::all_reduce, OperationKind::broadcast}) {
    input.kind = kind;
    const bool per_member =
        kind == OperationKind::all_gather || kind == OperationKind::reduce_scatter;
    input.counts.assign(per_member ? n : 1, per_member ? 16 : 16 * n);
    for (const Algorithm& algorithm : algorithms()) {
      const auto schedule = algorithm.make(input, 77777);
      const Round last = schedule->round(schedule->rounds() - 1);
      EXPECT_LE(last.sends.size(), 800000u) << algorithm.name;
      EXPECT_GE(algorithm.traffic(input, 77777).received, 16) << algorithm.name;
    }
  }
}

}  // namespace
}  // namespace weft
