// weft-moe-alltoall: routing, bytes, and results against the whole layer on one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "patterns/error.hpp"
#include "patterns/expert_routing.hpp"
#include "patterns_play.hpp"

namespace weft {
namespace {

using play::difference;
using play::First;
using play::small_model;

const Pattern& experts() { return find_pattern("moe-alltoall"); }

PatternOptions options_for(Direction direction) {
  PatternOptions options;
  options.direction = direction;
  return options;
}

TEST(Experts, ComputeWhatTheWholeLayerComputes) {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    for (int ep : {1, 2, 4, 8}) {
      for (int k : {1, 2, 8}) {
        for (double skew : {0.0, 1.5}) {
          PatternOptions options = options_for(direction);
          options.top_k = k;
          options.skew = skew;
          const First first = k == 2 ? First::comm : First::compute;
          EXPECT_EQ(difference(experts(), small_model(), {.ep = ep}, ep, options, first, 2), "")
              << "ep " << ep << " k " << k << " skew " << skew;
        }
      }
    }
  }
}

TEST(Experts, TakeGatedNetworksOtherDtypesAndLayouts) {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    PatternOptions options = options_for(direction);
    options.dtype = DType::bf16;
    options.experts = 6;
    EXPECT_EQ(difference(experts(), small_model(Activation::swiglu), {.ep = 3}, 3, options), "");
    options.experts = 0;
    EXPECT_EQ(difference(experts(), small_model(), {.tp = 2, .ep = 2, .pp = 2}, 8, options), "");
    EXPECT_EQ(difference(experts(), small_model(), {.tp = 2, .ep = 4, .etp = 1}, 8, options), "");
  }
}

const std::vector<std::vector<std::vector<Index>>>& matrices() {
  static const std::vector<std::vector<std::vector<Index>>> all{
      {{3, 1, 0, 2}, {0, 5, 1, 1}, {4, 0, 0, 7}, {1, 1, 1, 1}},
      {{0, 0, 0, 0}, {2, 0, 0, 3}, {0, 0, 0, 0}, {0, 4, 0, 0}},  // rows and a column of zeros
      {{0, 0, 9, 0}, {0, 0, 8, 0}, {0, 0, 7, 0}, {0, 0, 6, 0}},  // one receiver
      {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
  };
  return all;
}

TEST(Experts, FollowATokenMatrix) {
  for (Direction direction : {Direction::forward, Direction::backward}) {
    for (const auto& matrix : matrices()) {
      for (Activation act : {Activation::relu, Activation::swiglu}) {
        PatternOptions options = options_for(direction);
        options.token_matrix = matrix;
        EXPECT_EQ(difference(experts(), small_model(act), {.ep = 4}, 4, options, First::comm, 2),
                  "");
      }
    }
  }
}

TEST(Experts, SendTheRowsOfTheMatrix) {
  PatternOptions options = options_for(Direction::forward);
  options.token_matrix = matrices()[0];
  const Program p = experts().make(small_model(), Layout::make({.ep = 4}, 4), options, 2);
  const auto operations = operations_of(p, 2);
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[0].message, 8 * 4);       // counts of 8 experts
  EXPECT_EQ(operations[1].message, 11 * 8 * 4);  // 4 + 7 rows of 8 floats
  EXPECT_EQ(operations[1].sent, 11 * 8 * 4);     // none stays
  EXPECT_EQ(operations[2].message, 2 * 8 * 4);   // column: 0 + 1 + 0 + 1
  EXPECT_EQ(operations[2].sent, 2 * 8 * 4);
}

TEST(Experts, ChoicesGoWhereTheMatrixSays) {
  PatternOptions options;
  options.token_matrix = matrices()[0];
  const ExpertRouting routing =
      make_expert_routing(small_model(), Layout::make({.ep = 4}, 4), options);
  for (int from = 0; from < 4; ++from) {
    std::vector<Index> to(4, 0);
    for (std::int32_t expert : routing.choices(from)) ++to[static_cast<std::size_t>(expert / 2)];
    EXPECT_EQ(to, matrices()[0][static_cast<std::size_t>(from)]);
  }
}

TEST(Experts, EveryRankRunsTheSameCollectives) {
  PatternOptions options = options_for(Direction::backward);
  options.token_matrix = matrices()[1];
  std::set<std::string> lists;
  for (Rank r = 0; r < 4; ++r) {
    std::string list;
    for (const auto& op :
         operations_of(experts().make(small_model(), Layout::make({.ep = 4}, 4), options, r))) {
      list += op.label + ";";
    }
    lists.insert(list);
  }
  EXPECT_EQ(lists, (std::set<std::string>{"AllToAllV d results;AllToAllV d rows;"}));
}

TEST(Experts, MessagesAreTokensTimesTopK) {
  PatternOptions options = options_for(Direction::forward);
  options.dtype = DType::bf16;
  const auto operations = operations_of(
      experts().make(find_model("mixtral-8x7b"), Layout::make({.ep = 8}, 8), options, 0), 0);
  ASSERT_EQ(operations.size(), 3u);
  for (std::size_t i : {1u, 2u}) {
    EXPECT_TRUE(operations[i].run_time);
    EXPECT_EQ(operations[i].message, Bytes{4096} * 2 * 4096 * 2);
  }
}

TEST(Experts, BoundTheMemoryOfLargeModelsAndSaySo) {
  PatternOptions options = options_for(Direction::forward);
  options.dtype = DType::bf16;
  const ExpertRouting large =
      make_expert_routing(find_model("deepseek-v3"), Layout::make({.ep = 32}, 32), options);
  EXPECT_EQ(large.worst_rows, Index{32} * 4096 * 8);
  EXPECT_LT(large.capacity, large.worst_rows / 4);
  EXPECT_GT(large.capacity, Index{4096} * 8);  // above the balanced share
  const Program p =
      experts().make(find_model("deepseek-v3"), Layout::make({.ep = 32}, 32), options, 0);
  ASSERT_EQ(p.notes.size(), 2u);
  EXPECT_NE(p.notes[1].find("nothing is dropped"), std::string::npos);
  const ExpertRouting tiny =
      make_expert_routing(find_model("tiny"), Layout::make({.ep = 4}, 4), {});
  EXPECT_EQ(tiny.capacity, tiny.worst_rows);
  options.skew = 3;
  const ExpertRouting skewed =
      make_expert_routing(find_model("deepseek-v3"), Layout::make({.ep = 32}, 32), options);
  EXPECT_GT(skewed.capacity, large.capacity);
}

TEST(Experts, RefuseWhatDoesNotFit) {
  const auto make = [](const ModelShape& model, int ep, PatternOptions options) {
    return experts().make(model, Layout::make({.ep = ep}, ep), options, 0);
  };
  EXPECT_THROW(make(find_model("gpt2-small"), 2, {}), Error);  // no experts
  EXPECT_THROW(make(small_model(), 3, {}), Error);             // 8 do not divide
  EXPECT_THROW(make(small_model(), 16, {}), Error);            // more ranks than experts
  PatternOptions options;
  options.top_k = 9;
  EXPECT_THROW(make(small_model(), 2, options), Error);
  options = {};
  options.skew = -1;
  EXPECT_THROW(make(small_model(), 2, options), Error);
  options = {};
  options.token_matrix = matrices()[0];
  EXPECT_THROW(make(small_model(), 2, options), Error);  // 4 x 4 for ep 2
  options.token_matrix = {{1, 2}, {3}};
  EXPECT_THROW(make(small_model(), 2, options), Error);
  options.token_matrix = {{1, 2}, {3, -4}};
  EXPECT_THROW(make(small_model(), 2, options), Error);
}

/// Gradients of sum(dY*Y) by finite differences; the step is too small to change a selection.
TEST(Experts, ReferencesAgreeWithFiniteDifferences) {
  for (int k : {1, 2, 3}) {
    const Layout layout = Layout::make({}, 1);
    PatternOptions options = options_for(Direction::backward);
    options.top_k = k;
    play::World back({experts().make_reference(small_model(), layout, options)});
    back.run();
    options.direction = Direction::forward;
    const auto loss = [&](const std::string& tensor, Index row, Index col, double by) {
      play::World forward({experts().make_reference(small_model(), layout, options)});
      forward.at(0, tensor, 0, row, col) += by;
      forward.run();
      double sum = 0;
      for (Index r = 0; r < 8; ++r) {
        for (Index c = 0; c < 8; ++c)
          sum += back.at(0, "dY", 0, r, c) * forward.at(0, "Y", 0, r, c);
      }
      return sum;
    };
    for (const auto& [tensor, gradient] :
         {std::pair{"X", "dX"}, {"router", "d router"}, {"W1", "dW1"}, {"W2", "dW2"}}) {
      for (Index row = 0; row < 8; row += 3) {
        const double slope = (loss(tensor, row, 2, 1e-6) - loss(tensor, row, 2, -1e-6)) / 2e-6;
        EXPECT_NEAR(back.at(0, gradient, 0, row, 2), slope, 1e-6)
            << tensor << " row " << row << " k " << k;
      }
    }
  }
}

TEST(Experts, OptionTextsTellCellsApart) {
  PatternOptions a, b;
  a.token_matrix = {{1, 2}, {3, 4}};
  b.token_matrix = {{1, 2}, {4, 3}};
  EXPECT_NE(experts().option_texts(a), experts().option_texts(b));
  EXPECT_EQ(experts().option_texts(a), experts().option_texts(a));
  PatternOptions skewed;
  skewed.skew = 0.5;
  EXPECT_EQ(experts().option_texts(skewed).front(), "skew=0.5");
}

}  // namespace
}  // namespace weft
