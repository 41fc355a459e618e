// Closed forms against figures worked out by hand, and against the formulas of the patterns for
// even sizes.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/schedule_inputs.hpp"
#include "transports/schedule.hpp"

namespace weft {
namespace {

Index sent(std::string_view name, const ScheduleInput& input, int rank) {
  return find_algorithm(name).traffic(input, rank).sent;
}

TEST(ScheduleTraffic, EvenSizesFollowTheFormulas) {
  const int n = 8;
  const Index message = 64 * n;
  const ScheduleInput gather{
      .kind = OperationKind::all_gather, .size = n, .counts = std::vector<Index>(n, 64)};
  ScheduleInput scatter = gather;
  scatter.kind = OperationKind::reduce_scatter;
  const ScheduleInput reduce{.kind = OperationKind::all_reduce, .size = n, .counts = {message}};
  const ScheduleInput exchange{.kind = OperationKind::all_to_all_v,
                               .size = n,
                               .matrix = std::vector(n, std::vector<Index>(n, 64))};
  for (int r = 0; r < n; ++r) {
    for (std::string_view name : {"ring", "direct", "recursive", "hierarchical"}) {
      EXPECT_EQ(sent(name, gather, r), message * (n - 1) / n) << name;
      EXPECT_EQ(sent(name, scatter, r), message * (n - 1) / n) << name;
      EXPECT_EQ(sent(name, reduce, r), 2 * message * (n - 1) / n) << name;
    }
    EXPECT_EQ(sent("ring", exchange, r), message * (n - 1) / n);
    EXPECT_EQ(sent("direct", exchange, r), message * (n - 1) / n);
    EXPECT_EQ(sent("one-shot", reduce, r), message * (n - 1));
    EXPECT_EQ(sent("recursive-doubling", reduce, r), message * 3);
  }
  const ScheduleInput broadcast{
      .kind = OperationKind::broadcast, .size = n, .counts = {message}, .root = 3};
  EXPECT_EQ(sent("direct", broadcast, 3), message * (n - 1));
  EXPECT_EQ(sent("direct", broadcast, 4), 0);
  EXPECT_EQ(sent("ring", broadcast, 3), message);
  EXPECT_EQ(sent("ring", broadcast, 2), 0);  // the end of the chain
  EXPECT_EQ(sent("recursive", broadcast, 3), message * 3);
}

TEST(ScheduleTraffic, GptRowParallelAllReduce) {
  // gpt3-175b, s = 2048, b = 1, bf16: M = 50,331,648 bytes = 25,165,824 elements; ring over 8:
  // 88,080,384 bytes sent.
  const ScheduleInput input{.kind = OperationKind::all_reduce, .size = 8, .counts = {25165824}};
  const TrafficTotals t = find_algorithm("ring").traffic(input, 5);
  EXPECT_EQ(t.sent * 2, 88080384);
  EXPECT_EQ(t.messages_sent, 14);
}

TEST(ScheduleTraffic, UnevenRingByHand) {
  // Blocks 5, 0, 2 of a gather over 3: rank 0 sends all but rank 1's, in two messages; rank 1 all
  // but rank 2's, in one.
  const ScheduleInput input{
      .kind = OperationKind::all_gather, .size = 3, .counts = {5, 0, 2}, .hosts = {0, 0, 1}};
  EXPECT_EQ(find_algorithm("ring").traffic(input, 0), (TrafficTotals{7, 2, 2, 0}));
  EXPECT_EQ(find_algorithm("ring").traffic(input, 1), (TrafficTotals{5, 7, 1, 5}));
  EXPECT_EQ(find_algorithm("ring").traffic(input, 2), (TrafficTotals{2, 5, 1, 2}));
}

TEST(ScheduleTraffic, HierarchicalCrossesOnce) {
  const Algorithm& algorithm = find_algorithm("hierarchical");
  const auto crossings = [&](const ScheduleInput& input) {
    Index sum = 0;
    for (int r = 0; r < input.size; ++r) sum += algorithm.traffic(input, r).sent_to_other_hosts;
    return sum;
  };
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 0, 0, 1, 1, 1, 1}, std::vector{0, 1, 0, 1, 0, 1, 0, 1},
        std::vector{0, 0, 0, 1, 1, 2, 2, 2}, std::vector{4, 4, 4, 4, 4, 4, 4, 4}}) {
    std::vector<int> distinct = hosts;
    std::sort(distinct.begin(), distinct.end());
    const Index others = std::unique(distinct.begin(), distinct.end()) - distinct.begin() - 1;
    const ScheduleInput gather = make_input(OperationKind::all_gather, 8, Counts::uneven, hosts);
    const Index message = sum_of(gather.counts, 8);
    EXPECT_EQ(crossings(gather), others * message);
    EXPECT_EQ(crossings(make_input(OperationKind::reduce_scatter, 8, Counts::uneven, hosts)),
              others * message);
    EXPECT_EQ(crossings(make_input(OperationKind::all_reduce, 8, Counts::uneven, hosts)),
              2 * others * 29);
    EXPECT_EQ(crossings(make_input(OperationKind::broadcast, 8, Counts::uneven, hosts)),
              others * 29);
  }
}

TEST(ScheduleTraffic, HierarchicalUsesFewLargeMessages) {
  // Two hosts of four, all_reduce of 64: chunks of 8 in rail order, so that each neighbour gets one
  // piece of 16; 3 + 1 messages down, 1 + 3 up.
  const ScheduleInput reduce{.kind = OperationKind::all_reduce,
                             .size = 8,
                             .counts = {64},
                             .hosts = {0, 0, 0, 0, 1, 1, 1, 1}};
  EXPECT_EQ(find_algorithm("hierarchical").traffic(reduce, 2), (TrafficTotals{112, 112, 8, 16}));
  // all_to_all_v of single elements: to the other host goes one message of four, by rail; inside, 3
  // straight and 3 to bring.
  const ScheduleInput exchange{.kind = OperationKind::all_to_all_v,
                               .size = 8,
                               .matrix = std::vector(8, std::vector<Index>(8, 1)),
                               .hosts = {0, 0, 0, 0, 1, 1, 1, 1}};
  EXPECT_EQ(find_algorithm("hierarchical").traffic(exchange, 2), (TrafficTotals{10, 10, 7, 4}));
}

}  // namespace
}  // namespace weft
