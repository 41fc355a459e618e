// weft-dp-gradsync: buckets, bytes, and results against all ranks' tokens on one rank.
#include <gtest/gtest.h>

#include "patterns/error.hpp"
#include "patterns/gradient_plan.hpp"
#include "patterns_play.hpp"

namespace weft {
namespace {

using play::difference;
using play::First;
using play::small_model;

const Pattern& gradients() { return find_pattern("dp-gradsync"); }

PatternOptions backward() {
  PatternOptions options;
  options.direction = Direction::backward;
  return options;
}

// Of the small model a layer has 8*12 + 12 + 12*8 + 8 = 212 parameters.
constexpr double kLayer = 212 * 4 / 1048576.0;

TEST(Gradients, AreTheMeanOverAllTokens) {
  for (bool zero : {false, true}) {
    for (int d : {1, 2, 3, 4, 8}) {
      for (Optimizer optimizer : {Optimizer::none, Optimizer::sgd, Optimizer::adam}) {
        for (double bucket : {25.0, kLayer, 1e-6}) {
          PatternOptions options = backward();
          options.zero = zero;
          options.optimizer = optimizer;
          options.bucket_mib = bucket;
          const First first = d % 2 ? First::comm : First::compute;
          const int iterations = optimizer == Optimizer::adam ? 1 : 3;
          EXPECT_EQ(difference(gradients(), small_model(), {}, d, options, first, iterations), "")
              << "zero " << zero << " d " << d << " bucket " << bucket;
        }
      }
    }
  }
}

TEST(Gradients, TakeOtherModelsDtypesAndDimensions) {
  PatternOptions options = backward();
  options.dtype = options.grad_dtype = DType::bf16;
  options.bucket_mib = kLayer;
  EXPECT_EQ(difference(gradients(), small_model(Activation::swiglu), {.tp = 2, .pp = 2, .dp = 2}, 8,
                       options),
            "");
  EXPECT_EQ(difference(gradients(), small_model(Activation::relu), {.cp = 2, .dp = 2}, 4, options),
            "");
  options.bias = false;
  EXPECT_EQ(
      difference(gradients(), small_model(), {.dp = 4, .order = "pp-dp-cp-ep-tp"}, 4, options), "");
}

TEST(Gradients, BucketsCloseAtParameterBoundariesInReverseOrder) {
  PatternOptions options = backward();
  options.bucket_mib = kLayer;
  const Layout layout = Layout::make({}, 2);
  const GradientPlan plan = make_gradient_plan(small_model(), layout, options);
  ASSERT_EQ(plan.buckets.size(), 4u);  // a layer fills a bucket exactly
  EXPECT_EQ(plan.elements, 4 * 212);
  EXPECT_EQ(plan.parameters[0].name, "b2");
  EXPECT_EQ(plan.parameters[0].layer, 3);
  EXPECT_EQ(plan.parameters[3].name, "W1");
  EXPECT_EQ(plan.buckets[1].offset, 212);
  EXPECT_EQ(plan.parameters[plan.buckets[0].last].name, "W1");
  options.bucket_mib = kLayer * 0.6;  // 127 parameters: b2, W2 (104) and b1, W1 close the first
  const GradientPlan other = make_gradient_plan(small_model(), layout, options);
  EXPECT_EQ(other.buckets[0].elements, 8 + 96 + 12 + 96);
  options.bucket_mib = 25;
  EXPECT_EQ(make_gradient_plan(small_model(), layout, options).buckets.size(), 1u);
}

TEST(Gradients, SendTheBytesOfTheFormulas) {
  const Layout layout = Layout::make({}, 8);
  const auto sent = [&](PatternOptions options) {
    Bytes total = 0;
    for (const OperationTraffic& op :
         operations_of(gradients().make(small_model(), layout, options, 3), 3)) {
      total += op.times * op.sent;
    }
    return total;
  };
  const Bytes phi = 4 * 212;
  PatternOptions options = backward();
  EXPECT_EQ(sent(options), 2 * phi * 4 * 7 / 8);
  options.dtype = DType::bf16;
  options.zero = true;
  EXPECT_EQ(sent(options), phi * (4 + 2) * 7 / 8);  // 848 divides by 8
  options.grad_dtype = DType::bf16;
  EXPECT_EQ(sent(options), phi * (2 + 2) * 7 / 8);
}

TEST(Gradients, ZeroPadsEachBucketToTheRanks) {
  PatternOptions options = backward();
  options.zero = true;
  options.bucket_mib = kLayer;
  const GradientPlan plan = make_gradient_plan(small_model(), Layout::make({}, 3), options);
  EXPECT_EQ(plan.padding, 4);  // 212 -> 213
  EXPECT_EQ(plan.elements, 4 * 213);
}

TEST(Gradients, EachBucketStartsWithItsLastGradient) {
  PatternOptions options = backward();
  options.bucket_mib = kLayer;
  const Program p = gradients().make(small_model(), Layout::make({}, 2), options, 0);
  const auto flat = flatten(p, p.steps);
  std::vector<std::string> waits;
  for (const FlatStep& step : flat) {
    if (!std::holds_alternative<Collective>(step.op)) continue;
    ASSERT_EQ(step.after.size(), 1u);
    waits.push_back(flat[static_cast<std::size_t>(step.after[0])].label);
  }
  EXPECT_EQ(waits, (std::vector<std::string>{"dW1 of layer 3", "dW1 of layer 2", "dW1 of layer 1",
                                             "dW1 of layer 0"}));
}

TEST(Gradients, LargeModelsAreCheap) {
  PatternOptions options = backward();
  options.dtype = DType::bf16;
  const Layout layout = Layout::make({.tp = 8, .pp = 16, .dp = 8}, 1024);
  const Program p = gradients().make(find_model("gpt3-175b"), layout, options, 1000);
  validate(p);
  // 6 layers a stage: each of the two matrices (12288 x 6144, f32) fills a bucket, each bias goes
  // with the next one.
  EXPECT_EQ(operations_of(p).size(), 12u);
}

TEST(Gradients, RefuseWhatDoesNotFit) {
  PatternOptions options = backward();
  options.bucket_mib = 0;
  EXPECT_THROW(gradients().make(small_model(), Layout::make({}, 2), options, 0), Error);
  options = backward();
  options.grad_dtype = DType::i32;
  EXPECT_THROW(gradients().make(small_model(), Layout::make({}, 2), options, 0), Error);
  EXPECT_THROW(gradients().make(small_model(), Layout::make({.pp = 3}, 3), backward(), 0), Error);
  EXPECT_THROW(gradients().make(small_model(), Layout::make({.tp = 5}, 5), backward(), 0), Error);
}

/// The gradients of sum(dY*(H W2 + b2)) by finite differences of H, for one layer.
TEST(Gradients, AgreeWithFiniteDifferences) {
  PatternOptions options = backward();
  options.layers = 1;
  const Layout layout = Layout::make({}, 1);
  const GradientPlan plan = make_gradient_plan(small_model(), layout, options);
  const auto played = [&](Index parameter, double by) {
    play::World world({gradients().make_reference(small_model(), layout, options)});
    world.at(0, "parameters", 0, 0, parameter) += by;
    world.run();
    return world;
  };
  const auto offset = [&](const char* name) { return plan.parameters[plan.find(name, 0)].offset; };
  const auto loss = [&](play::World world) {
    double sum = 0;
    for (Index t = 0; t < 8; ++t) {
      for (Index c = 0; c < 8; ++c) {
        double y = world.at(0, "parameters", 0, 0, offset("b2") + c);
        for (Index k = 0; k < 12; ++k) {
          y +=
              world.at(0, "H", 0, t, k) * world.at(0, "parameters", 0, 0, offset("W2") + k * 8 + c);
        }
        sum += y * world.at(0, "dY", 0, t, c);
      }
    }
    return sum;
  };
  play::World back = played(0, 0);
  for (const char* name : {"W1", "b1", "W2", "b2"}) {
    const Index p = offset(name) + 5;
    const double slope = (loss(played(p, 1e-5)) - loss(played(p, -1e-5))) / 2e-5;
    EXPECT_NEAR(back.at(0, "gradients", 0, 0, p), slope, 1e-6) << name;
    EXPECT_NEAR(back.at(0, "updated", 0, 0, p), back.at(0, "parameters", 0, 0, p) - 0.01 * slope,
                1e-7)
        << name;
  }
}

}  // namespace
}  // namespace weft
