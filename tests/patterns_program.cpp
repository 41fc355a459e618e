#include "patterns/program.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "patterns/error.hpp"
#include "patterns/pattern.hpp"

namespace weft {
namespace {

Group group_of(int size, Dimension dim = Dimension::tp) {
  return {.dim = dim, .ranks = {.base = 0, .axes = {{.count = size, .stride = 1}}}};
}

Step copy_step(const Program& p, TensorId from, TensorId to,
               StreamRole stream = StreamRole::compute) {
  return {.op = Compute{.kind = ComputeKind::copy, .in = {p.whole(from)}, .out = {p.whole(to)}},
          .stream = stream};
}

TEST(Names, EveryDtypeHasOneAndIsFoundInAnyCase) {
  EXPECT_EQ(parse_dtype("BF16"), DType::bf16);
  EXPECT_EQ(parse_dtype("f32"), DType::f32);
  EXPECT_EQ(parse_dtype("F16"), DType::f16);
  EXPECT_FALSE(parse_dtype("i32"));  // not a type of a run
  EXPECT_FALSE(parse_dtype(""));
  EXPECT_EQ(to_string(Dimension::ep), "ep");
  EXPECT_EQ(to_string(ComputeKind::unpermute_grad), "unpermute_grad");
  EXPECT_EQ(to_string(CollectiveKind::all_to_all_v), "all_to_all_v");
}

TEST(RankSet, MembersIndicesAndInverseAgree) {
  const RankSet set{.base = 3, .axes = {{.count = 2, .stride = 4}, {.count = 3, .stride = 16}}};
  const std::vector<Rank> expected{3, 7, 19, 23, 35, 39};
  EXPECT_EQ(set.size(), 6);
  EXPECT_EQ(set.members(), expected);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(set.at(i), expected[static_cast<std::size_t>(i)]);
    EXPECT_EQ(set.index_of(set.at(i)), i);
  }
  for (Rank other : {0, 2, 4, 8, 11, 51, -1}) EXPECT_EQ(set.index_of(other), -1) << other;
  EXPECT_THROW(set.at(6), Error);
}

TEST(RankSet, SlowAxisFirstIsFoundToo) {
  const RankSet set{.base = 0, .axes = {{.count = 3, .stride = 5}, {.count = 2, .stride = 1}}};
  EXPECT_EQ(set.members(), (std::vector<Rank>{0, 5, 10, 1, 6, 11}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(set.index_of(set.at(i)), i);
}

TEST(RankSet, OfOneRankHasNoAxes) {
  const RankSet set{.base = 4, .axes = {}};
  EXPECT_EQ(set.members(), (std::vector<Rank>{4}));
  EXPECT_EQ(set.index_of(4), 0);
  EXPECT_EQ(set.index_of(5), -1);
}

TEST(Program, FillsGlobalSizesAndReusesGroups) {
  Program p;
  const TensorId x =
      p.add(Tensor{.name = "X", .rows = 4, .cols = 6, .global_cols = 12, .col_offset = 6});
  EXPECT_EQ(p.tensors[0].global_rows, 4);
  EXPECT_EQ(p.tensors[0].global_cols, 12);
  EXPECT_EQ(p.add(group_of(2)), 0);
  EXPECT_EQ(p.add(group_of(2, Dimension::dp)), 1);
  EXPECT_EQ(p.add(group_of(2)), 0);
  const View rows = rows_of(p.tensors[0], x, 1, 2);
  EXPECT_EQ(rows.offset, 6);
  EXPECT_EQ(rows.elements(), 12);
  EXPECT_TRUE(rows.contiguous());
  EXPECT_THROW(p.whole(1), Error);
}

Program nested() {
  Program p;
  const TensorId x =
      p.add(Tensor{.name = "X", .rows = 1, .cols = 1, .slots = 4, .fill = Fill::uniform});
  const TensorId y = p.add(Tensor{.name = "Y", .rows = 1, .cols = 1, .slots = 6});
  View from = p.whole(x), to = p.whole(y);
  from.slot = 1;
  from.slot_per = {2, 1};
  to.slot_per = {3, 1};
  Step compute{.op = Compute{.kind = ComputeKind::copy, .in = {from}, .out = {to}},
               .label = "compute"};
  Step comm{.op = Collective{.kind = CollectiveKind::all_reduce,
                             .group = p.add(group_of(2)),
                             .in = from,
                             .out = to},
            .stream = StreamRole::comm,
            .label = "comm"};
  compute.after = {{.step = 1, .distance = 2}};
  comm.after = {{.step = 0}};
  p.then(Step{
      .op = Repeat{.count = 2, .body = {Step{.op = Repeat{.count = 3, .body = {compute, comm}}}}}});
  p.then(Step{.op = Compute{.kind = ComputeKind::copy, .in = {p.whole(x)}, .out = {p.whole(y)}},
              .after = {{.step = 0}}});
  return p;
}

TEST(Flatten, ResolvesSlotsOfNestedRepeats) {
  const Program p = nested();
  const std::vector<FlatStep> flat = flatten(p, p.steps);
  ASSERT_EQ(flat.size(), 13U);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      const FlatStep& step = flat[static_cast<std::size_t>(i * 6 + j * 2)];
      const auto& op = std::get<Compute>(step.op);
      EXPECT_EQ(op.in[0].slot, (1 + 2 * i + j) % 4);
      EXPECT_EQ(op.out[0].slot, 3 * i + j);
      EXPECT_EQ(op.in[0].slot_per, (std::array<int, 2>{0, 0}));
      EXPECT_EQ(step.round, (std::array<int, 2>{i, j}));
      EXPECT_EQ(step.origin, 0);
      EXPECT_EQ(step.label, "compute");
    }
  }
  EXPECT_EQ(flat[12].origin, 1);
}

TEST(Flatten, DistancesNameEarlierRoundsOfTheSameRepeat) {
  const Program p = nested();
  const std::vector<FlatStep> flat = flatten(p, p.steps);
  for (std::size_t base : {0U, 6U}) {
    EXPECT_TRUE(flat[base].after.empty());
    EXPECT_TRUE(flat[base + 2].after.empty());
    EXPECT_EQ(flat[base + 4].after,
              (std::vector<int>{static_cast<int>(base) + 1}));  // comm of two rounds before
    EXPECT_EQ(flat[base + 1].after, (std::vector<int>{static_cast<int>(base)}));
    EXPECT_EQ(flat[base + 5].after, (std::vector<int>{static_cast<int>(base) + 4}));
  }
  // After the whole repeat: the last step of its other stream; its own stream is in order anyway.
  EXPECT_EQ(flat[12].after, (std::vector<int>{11}));
}

TEST(Flatten, ARepeatWaitsAsAWhole) {
  Program p;
  const TensorId x = p.add(Tensor{.name = "X", .rows = 1, .cols = 1, .fill = Fill::uniform});
  const TensorId y = p.add(Tensor{.name = "Y", .rows = 1, .cols = 1});
  p.then(copy_step(p, x, y));
  p.then(Step{.op = Repeat{.count = 2, .body = {copy_step(p, x, y, StreamRole::comm)}},
              .after = {{.step = 0}}});
  const std::vector<FlatStep> flat = flatten(p, p.steps);
  ASSERT_EQ(flat.size(), 3U);
  EXPECT_EQ(flat[1].after, (std::vector<int>{0}));
  EXPECT_TRUE(flat[2].after.empty());  // follows flat[1] on its stream
}

TEST(Flatten, NegativeSlotStepsWrapAround) {
  Program p;
  const TensorId x =
      p.add(Tensor{.name = "X", .rows = 1, .cols = 1, .slots = 3, .fill = Fill::uniform});
  const TensorId y = p.add(Tensor{.name = "Y", .rows = 1, .cols = 1});
  Step step = copy_step(p, x, y);
  std::get<Compute>(step.op).in[0].slot_per = {-1, 0};
  p.then(Step{.op = Repeat{.count = 4, .body = {step}}});
  std::vector<int> slots;
  for (const FlatStep& flat : flatten(p, p.steps))
    slots.push_back(std::get<Compute>(flat.op).in[0].slot);
  EXPECT_EQ(slots, (std::vector<int>{0, 2, 1, 0}));
}

TEST(Flatten, RefusesThreeLevels) {
  Program p;
  p.then(
      Step{.op = Repeat{.count = 1,
                        .body = {Step{.op = Repeat{.count = 1, .body = {Step{.op = Repeat{}}}}}}}});
  EXPECT_THROW(flatten(p, p.steps), Error);
}

TEST(Leaves, AreCountedWithoutExpansion) {
  const Program p = nested();
  std::vector<std::int64_t> times;
  for_each_leaf(p.steps, [&times](const Step&, std::int64_t n) { times.push_back(n); });
  EXPECT_EQ(times, (std::vector<std::int64_t>{6, 6, 1}));
}

TEST(Flops, AGemmDoesTwoPerMultiplyAdd) {
  const View a{.tensor = 0, .rows = 3, .cols = 5, .ld = 5},
      at{.tensor = 0, .rows = 5, .cols = 3, .ld = 3};
  const View b{.tensor = 1, .rows = 5, .cols = 7, .ld = 7},
      c{.tensor = 2, .rows = 3, .cols = 7, .ld = 7};
  EXPECT_EQ((Compute{.kind = ComputeKind::gemm, .in = {a, b}, .out = {c}}.flops()), 210);
  EXPECT_EQ(
      (Compute{.kind = ComputeKind::gemm, .in = {at, b}, .out = {c}, .trans_a = true}.flops()),
      210);
  const View counts{.tensor = 3, .rows = 1, .cols = 2, .ld = 2},
      stacked{.tensor = 1, .rows = 10, .cols = 7, .ld = 7};
  EXPECT_EQ(
      (Compute{
          .kind = ComputeKind::grouped_gemm, .in = {a, stacked, counts}, .out = {c}, .experts = 2}
           .flops()),
      210);
  EXPECT_EQ(
      (Compute{
          .kind = ComputeKind::grouped_wgrad, .in = {a, c, counts}, .out = {stacked}, .experts = 2}
           .flops()),
      210);
  EXPECT_EQ((Compute{.kind = ComputeKind::copy, .in = {a}, .out = {a}}.flops()), 0);
  EXPECT_EQ((Compute{.kind = ComputeKind::add, .in = {a, a}, .out = {a}}.flops()), 15);
}

struct TrafficProgram {
  Program program;
  GroupId group;

  explicit TrafficProgram(int n) : group(program.add(group_of(n))) {}
  View buffer(Index elements, DType dtype = DType::bf16) {
    return program.whole(program.add(
        Tensor{.name = "T", .dtype = dtype, .rows = 1, .cols = elements, .fill = Fill::uniform}));
  }
  void then(Op op) { program.then(Step{.op = std::move(op), .stream = StreamRole::comm}); }
  OperationTraffic only(Rank rank = -1) {
    const auto operations = operations_of(program, rank);
    EXPECT_EQ(operations.size(), 1U);
    return operations.at(0);
  }
};

TEST(Traffic, GatherOfUnevenShardsSendsWhatTheRankDoesNotOwn) {
  TrafficProgram t(4);
  t.then(Collective{.kind = CollectiveKind::all_gather,
                    .group = t.group,
                    .in = t.buffer(3),
                    .out = t.buffer(10),
                    .counts = {3, 3, 2, 2}});
  EXPECT_EQ(t.only().message, 20);
  EXPECT_EQ(t.only().sent, 14);
  EXPECT_EQ(t.only().operation, "all_gather");
}

TEST(Traffic, ReduceScatterAndAllReduceOfGpt3) {
  // Row-parallel AllReduce at 2048 tokens in bf16: 50,331,648 bytes, over 8 ranks 88,080,384 sent.
  TrafficProgram t(8);
  const Index elements = 2048 * 12288;
  t.then(Collective{.kind = CollectiveKind::all_reduce,
                    .group = t.group,
                    .in = t.buffer(elements),
                    .out = t.buffer(elements)});
  EXPECT_EQ(t.only().message, 50'331'648);
  EXPECT_EQ(t.only().sent, 88'080'384);
  TrafficProgram s(8);
  s.then(Collective{.kind = CollectiveKind::reduce_scatter,
                    .group = s.group,
                    .in = s.buffer(elements),
                    .out = s.buffer(elements / 8),
                    .counts = std::vector<Index>(8, elements / 8)});
  EXPECT_EQ(s.only().sent, 44'040'192);
  EXPECT_EQ(logical_bytes(s.program), 50'331'648);
}

TEST(Traffic, ABroadcastIsSentByItsRootAlone) {
  TrafficProgram t(4);
  t.then(Collective{.kind = CollectiveKind::broadcast,
                    .group = t.group,
                    .in = t.buffer(5),
                    .out = t.buffer(5),
                    .root = 2});
  EXPECT_EQ(t.only(2).sent, 30);
  EXPECT_EQ(t.only(0).sent, 0);
  EXPECT_EQ(t.only(0).message, 10);
}

TEST(Traffic, AnExchangeKeepsItsOwnPart) {
  TrafficProgram t(3);
  t.then(Collective{.kind = CollectiveKind::all_to_all_v,
                    .group = t.group,
                    .in = t.buffer(9),
                    .out = t.buffer(6),
                    .counts = {1, 6, 2},
                    .recv_counts = {0, 6, 0}});
  EXPECT_EQ(t.only(1).sent, 6);
  EXPECT_EQ(t.only(0).sent, 16);
  EXPECT_EQ(t.only().sent, 12);  // whose it is not told: as if even
  EXPECT_EQ(t.only(1).message, 18);
  EXPECT_FALSE(t.only(1).run_time);
}

TEST(Traffic, CountsOfTheRunAreExpectedFromTheLesserCapacity) {
  TrafficProgram t(4);
  CountsRef ref{.send = t.buffer(4, DType::i32),
                .recv = t.buffer(4, DType::i32),
                .per_peer = 1,
                .row_elements = 2};
  t.then(Collective{.kind = CollectiveKind::all_to_all_v,
                    .group = t.group,
                    .in = t.buffer(64),
                    .out = t.buffer(16),
                    .run_time = ref});
  EXPECT_TRUE(t.only().run_time);
  EXPECT_EQ(t.only().message, 32);
  EXPECT_EQ(t.only().sent, 24);
}

TEST(Traffic, MessagesCountForTheirSenderAndEveryRound) {
  TrafficProgram t(2);
  PostedTogether both{
      .members = {{.send = true, .group = t.group, .peer = 1, .data = t.buffer(8)},
                  {.send = false, .group = t.group, .peer = 1, .data = t.buffer(16)}}};
  t.program.then(
      Step{.op = Repeat{.count = 5, .body = {Step{.op = both, .stream = StreamRole::comm}}}});
  EXPECT_EQ(t.only().operation, "send");
  EXPECT_EQ(t.only().times, 5);
  EXPECT_EQ(t.only().sent, 16);
  EXPECT_EQ(logical_bytes(t.program), 80);
  EXPECT_EQ(memory_bytes(t.program), 16 + 32);
}

TEST(Traffic, AGroupOfOneSendsNothing) {
  TrafficProgram t(1);
  t.then(Collective{.kind = CollectiveKind::all_gather,
                    .group = t.group,
                    .in = t.buffer(4),
                    .out = t.buffer(4),
                    .counts = {4}});
  t.then(Collective{
      .kind = CollectiveKind::all_reduce, .group = t.group, .in = t.buffer(4), .out = t.buffer(4)});
  for (const OperationTraffic& operation : operations_of(t.program)) EXPECT_EQ(operation.sent, 0);
}

TEST(Listing, TextNamesTensorsStepsAndDependencies) {
  Program p = nested();
  p.notes = {"padded to 4"};
  const std::string text = to_text(p);
  for (const char* part :
       {"X", "x 4 slots", "all_reduce X[1+2i+1j][1x1] -> Y[0+3i+1j][1x1] over tp {0, 1}",
        "repeat 3 times", "after 1 of 2 rounds before", "'comm'", "note: padded to 4"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Listing, JsonHoldsTheSame) {
  const nlohmann::json json = nlohmann::json::parse(to_json(nested()));
  EXPECT_EQ(json["tensors"].size(), 2U);
  EXPECT_EQ(json["tensors"][0]["slots"], 4);
  EXPECT_EQ(json["groups"][0]["size"], 2);
  const auto& inner = json["steps"][0]["body"][0];
  EXPECT_EQ(inner["op"], "repeat");
  EXPECT_EQ(inner["count"], 3);
  EXPECT_EQ(inner["body"][0]["kind"], "copy");
  EXPECT_EQ(inner["body"][0]["after"][0]["distance"], 2);
  EXPECT_EQ(inner["body"][1]["kind"], "all_reduce");
  EXPECT_TRUE(inner["body"][1]["run_time"].is_null());
}

}  // namespace
}  // namespace weft
