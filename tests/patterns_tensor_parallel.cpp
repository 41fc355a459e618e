// weft-tp-allgather and weft-row-allreduce: bytes, steps, and results against the unsharded layer.
#include <gtest/gtest.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "patterns_play.hpp"

namespace weft {
namespace {

using play::difference;
using play::First;
using play::small_model;

struct Case {
  std::string pattern;
  Direction direction;
  bool sequence_parallel, keep_gathered;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"tp-allgather", Direction::forward, false, false},
      {"tp-allgather", Direction::backward, false, false},
      {"tp-allgather", Direction::forward, true, false},
      {"tp-allgather", Direction::backward, true, false},
      {"tp-allgather", Direction::backward, true, true},
      {"row-allreduce", Direction::forward, false, false},
      {"row-allreduce", Direction::backward, false, false},
      {"row-allreduce", Direction::forward, true, false},
      {"row-allreduce", Direction::backward, true, false},
  };
  return all;
}

PatternOptions options_of(const Case& c) {
  PatternOptions options;
  options.direction = c.direction;
  options.sequence_parallel = c.sequence_parallel;
  options.keep_gathered = c.keep_gathered;
  return options;
}

std::vector<OperationTraffic> operations(const std::string& pattern, const std::string& model,
                                         int tp, PatternOptions options) {
  const Layout layout = Layout::make({.tp = tp}, tp);
  return operations_of(find_pattern(pattern).make(find_model(model), layout, options, 0), 0);
}

TEST(TensorParallel, ComputesWhatTheWholeLayerComputes) {
  for (const Case& c : cases()) {
    for (int tp : {1, 2, 4, 8}) {
      for (Activation act : {Activation::gelu, Activation::relu, Activation::swiglu}) {
        for (First first : {First::compute, First::comm}) {
          EXPECT_EQ(difference(find_pattern(c.pattern), small_model(act), {.tp = tp}, tp,
                               options_of(c), first, 2),
                    "")
              << c.pattern << " tp " << tp << " direction " << int(c.direction);
        }
      }
    }
  }
}

TEST(TensorParallel, TakesUnevenWidths) {
  for (const Case& c : cases()) {
    if (c.sequence_parallel) continue;
    EXPECT_EQ(difference(find_pattern(c.pattern), small_model(), {.tp = 3}, 3, options_of(c)), "");
    EXPECT_EQ(difference(find_pattern(c.pattern), small_model(), {.tp = 5}, 5, options_of(c)), "");
  }
}

TEST(TensorParallel, WorksWithoutBiasInOtherDimensionsAndOrders) {
  for (const Case& c : cases()) {
    PatternOptions options = options_of(c);
    options.bias = false;
    options.dtype = DType::bf16;
    const LayoutSpec spec{.tp = 2, .pp = 2, .dp = 2, .order = "pp-tp-cp-ep-dp"};
    EXPECT_EQ(difference(find_pattern(c.pattern), small_model(), spec, 8, options), "");
  }
}

TEST(TensorParallel, SendsTheBytesOfTheFormulas) {
  PatternOptions options;
  options.dtype = DType::bf16;
  auto column = operations("tp-allgather", "gpt3-175b", 8, options);
  ASSERT_EQ(column.size(), 1u);
  EXPECT_EQ(column[0].operation, "all_gather");
  EXPECT_EQ(column[0].message, 201326592);
  EXPECT_EQ(column[0].sent, 176160768);  // M*7/8
  auto row = operations("row-allreduce", "gpt3-175b", 8, options);
  ASSERT_EQ(row.size(), 1u);
  EXPECT_EQ(row[0].operation, "all_reduce");
  EXPECT_EQ(row[0].message, 50331648);
  EXPECT_EQ(row[0].sent, 88080384);
  options.direction = Direction::backward;
  column = operations("tp-allgather", "gpt3-175b", 8, options);
  ASSERT_EQ(column.size(), 1u);
  EXPECT_EQ(column[0].operation, "all_reduce");
  EXPECT_EQ(column[0].message, 50331648);
  EXPECT_TRUE(operations("row-allreduce", "gpt3-175b", 8, options).empty());
}

TEST(TensorParallel, SequenceParallelMovesTheBytesOfOneAllReduceForwardAndBack) {
  PatternOptions options;
  options.dtype = DType::bf16;
  options.sequence_parallel = true;
  Bytes row = 0;
  for (Direction direction : {Direction::forward, Direction::backward}) {
    options.direction = direction;
    for (const OperationTraffic& op : operations("row-allreduce", "gpt3-175b", 8, options)) {
      EXPECT_EQ(op.message, 50331648);
      row += op.sent;
    }
  }
  EXPECT_EQ(row, 88080384);
  const auto again = operations("tp-allgather", "gpt3-175b", 8, options);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].operation, "all_gather");
  EXPECT_EQ(again[1].operation, "reduce_scatter");
  options.keep_gathered = true;
  EXPECT_EQ(operations("tp-allgather", "gpt3-175b", 8, options).size(), 1u);
}

TEST(TensorParallel, OverlapsTheSumOfDxWithTheGradientOfTheWeights) {
  PatternOptions options;
  options.direction = Direction::backward;
  const Layout layout = Layout::make({.tp = 2}, 2);
  const Program p = find_pattern("tp-allgather").make(small_model(), layout, options, 0);
  int reduce = -1, wgrad = -1;
  const auto flat = flatten(p, p.steps);
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (std::holds_alternative<Collective>(flat[i].op)) reduce = static_cast<int>(i);
    if (flat[i].label == "dA = X^T dZ") wgrad = static_cast<int>(i);
  }
  ASSERT_GE(reduce, 0);
  EXPECT_GT(wgrad, reduce);
  EXPECT_TRUE(flat[static_cast<std::size_t>(wgrad)].after.empty());
  EXPECT_EQ(flat[static_cast<std::size_t>(reduce)].stream, StreamRole::comm);
}

TEST(TensorParallel, RelayoutIsAStep) {
  const Layout layout = Layout::make({.tp = 2}, 2);
  const Program p = find_pattern("tp-allgather").make(small_model(), layout, {}, 1);
  const auto& last = std::get<Compute>(p.steps.back().op);
  EXPECT_EQ(last.kind, ComputeKind::relayout);
  EXPECT_EQ(last.counts, (std::vector<Index>{6, 6}));
}

TEST(TensorParallel, RefusesWhatDoesNotFit) {
  PatternOptions options;
  options.sequence_parallel = true;
  for (const char* name : {"tp-allgather", "row-allreduce"}) {
    const Pattern& pattern = find_pattern(name);
    EXPECT_THROW(pattern.make(small_model(), Layout::make({.tp = 3}, 3), options, 0), Error);
    EXPECT_THROW(pattern.make(small_model(), Layout::make({.tp = 13}, 13), {}, 0), Error);
    PatternOptions both;
    both.direction = Direction::both;
    EXPECT_THROW(pattern.make(small_model(), Layout::make({}, 1), both, 0), Error);
  }
}

/// d/dX of sum(dY*Y) by finite differences of the forward reference, for the backward one.
TEST(TensorParallel, ReferencesAgreeWithFiniteDifferences) {
  for (const char* name : {"tp-allgather", "row-allreduce"}) {
    for (Activation act : {Activation::gelu, Activation::swiglu}) {
      const Pattern& pattern = find_pattern(name);
      const Layout layout = Layout::make({}, 1);
      PatternOptions options;
      const auto reference = [&](Direction direction) {
        options.direction = direction;
        return play::World({pattern.make_reference(small_model(act), layout, options)});
      };
      play::World back = reference(Direction::backward);
      back.run();
      const Tensor dy = back.program(0).tensors[static_cast<std::size_t>(
          std::find_if(back.program(0).tensors.begin(), back.program(0).tensors.end(),
                       [](const Tensor& t) { return t.name == "dY"; }) -
          back.program(0).tensors.begin())];
      const auto loss = [&](const std::string& tensor, double by) {
        play::World forward = reference(Direction::forward);
        forward.at(0, tensor, 0, 1, 2) += by;
        forward.run();
        double sum = 0;
        for (Index r = 0; r < dy.rows; ++r) {
          for (Index c = 0; c < dy.cols; ++c)
            sum += back.at(0, "dY", 0, r, c) * forward.at(0, "Y", 0, r, c);
        }
        return sum;
      };
      const std::string a = back.has(0, "A") ? "A" : "A_up";
      for (const std::string& tensor : {std::string("X"), a}) {
        const double slope = (loss(tensor, 1e-5) - loss(tensor, -1e-5)) / 2e-5;
        EXPECT_NEAR(back.at(0, "d" + tensor, 0, 1, 2), slope, 1e-6) << name << " " << tensor;
      }
    }
  }
}

}  // namespace
}  // namespace weft
