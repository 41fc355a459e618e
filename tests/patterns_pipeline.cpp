// weft-pp-sendrecv: schedules, messages, and results against all layers on one rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "patterns_play.hpp"

namespace weft {
namespace {

using play::difference;
using play::First;
using play::small_model;

const Pattern& pipeline() { return find_pattern("pp-sendrecv"); }

PatternOptions options_with(int micro_batches, PipelineSchedule schedule) {
  PatternOptions options;
  options.direction = Direction::both;
  options.micro_batches = micro_batches;
  options.schedule = schedule;
  return options;
}

TEST(Pipeline, ComputesWhatAllLayersOnOneRankCompute) {
  for (PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    for (int stages : {1, 2, 3, 4}) {
      for (int m : {1, 2, 3, 5, 8}) {
        for (First first : {First::compute, First::comm}) {
          EXPECT_EQ(difference(pipeline(), small_model(), {.pp = stages}, stages,
                               options_with(m, schedule), first, 2),
                    "")
              << stages << " stages, " << m << " micro-batches, schedule " << int(schedule);
        }
      }
    }
  }
}

TEST(Pipeline, RunsEightStagesAndOtherDimensions) {
  PatternOptions options = options_with(4, PipelineSchedule::one_f_one_b);
  options.layers = 11;  // uneven: three stages have 2 layers
  options.bias = false;
  EXPECT_EQ(difference(pipeline(), small_model(), {.pp = 8}, 8, options), "");
  EXPECT_EQ(difference(pipeline(), small_model(Activation::swiglu), {.tp = 2, .pp = 2, .dp = 2}, 8,
                       options),
            "");
  options.sequence_parallel = true;
  EXPECT_EQ(difference(pipeline(), small_model(), {.tp = 2, .pp = 4}, 8, options), "");
}

/// "F0 F1 B0 ..." of one rank: forward and backward of micro-batches, by the slot of the layer
/// inputs in order.
std::string order_of(const Program& p) {
  std::string text;
  int forward = 0, backward = 0;
  std::array<int, 2> round{-1, -1};
  StepId origin = -1;
  Direction last = Direction::both;
  for (const FlatStep& step : flatten(p, p.steps)) {
    if (step.label != "Z = X W" && step.label != "dX = dZ W^T") continue;
    const bool same = step.origin == origin && step.round[0] == round[0] && step.direction == last;
    if (!same)
      text += step.direction == Direction::forward ? "F" + std::to_string(forward++) + " "
                                                   : "B" + std::to_string(backward++) + " ";
    origin = step.origin;
    round = step.round;
    last = step.direction;
  }
  return text;
}

TEST(Pipeline, FollowsTheSchedules) {
  const Layout layout = Layout::make({.pp = 4}, 4);
  const auto order = [&](PipelineSchedule schedule, Rank rank) {
    return order_of(pipeline().make(small_model(), layout, options_with(5, schedule), rank));
  };
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, 0), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4 ");
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
  EXPECT_EQ(order(PipelineSchedule::one_f_one_b, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ");
  EXPECT_EQ(order(PipelineSchedule::gpipe, 3), "F0 F1 F2 F3 F4 B0 B1 B2 B3 B4 ");
}

std::int64_t messages(const Program& p, Direction direction, Bytes* size = nullptr) {
  std::int64_t n = 0;
  for (const OperationTraffic& op : operations_of(p)) {
    if (op.direction != direction) continue;
    n += op.times;
    if (size) *size = op.message;
  }
  return n;
}

TEST(Pipeline, SendsOneMessagePerMicroBatchAndEdge) {
  const Layout layout = Layout::make({.pp = 4}, 4);
  for (PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    for (int m : {1, 3, 8}) {
      for (Rank r = 0; r < 4; ++r) {
        const Program p = pipeline().make(small_model(), layout, options_with(m, schedule), r);
        EXPECT_EQ(messages(p, Direction::forward), r < 3 ? m : 0);
        EXPECT_EQ(messages(p, Direction::backward), r > 0 ? m : 0);
      }
    }
  }
}

TEST(Pipeline, MessagesHaveTheSizesOfTheModel) {
  PatternOptions options = options_with(4, PipelineSchedule::one_f_one_b);
  options.dtype = DType::bf16;
  const Layout layout = Layout::make({.tp = 8, .pp = 2}, 16);
  Bytes size = 0;
  EXPECT_EQ(messages(pipeline().make(find_model("gpt3-175b"), layout, options, 0),
                     Direction::forward, &size),
            4);
  EXPECT_EQ(size, 50331648);
  options.sequence_parallel = true;
  EXPECT_EQ(messages(pipeline().make(find_model("gpt3-175b"), layout, options, 8),
                     Direction::backward, &size),
            4);
  EXPECT_EQ(size, 6291456);
}

TEST(Pipeline, KeepsOnlyWhatIsInFlight) {
  const Layout layout = Layout::make({.pp = 4}, 4);
  const auto slots = [&](PipelineSchedule schedule, Rank r) {
    const Program p = pipeline().make(small_model(), layout, options_with(8, schedule), r);
    return std::find_if(p.tensors.begin(), p.tensors.end(),
                        [](const Tensor& t) { return t.name == "Z"; })
        ->slots;
  };
  EXPECT_EQ(slots(PipelineSchedule::one_f_one_b, 0), 4);  // one layer a stage
  EXPECT_EQ(slots(PipelineSchedule::one_f_one_b, 3), 1);
  EXPECT_EQ(slots(PipelineSchedule::gpipe, 3), 8);
}

TEST(Pipeline, ProgramsStaySmall) {
  const Layout layout = Layout::make({.pp = 4}, 4);
  const Program few = pipeline().make(find_model("gpt3-175b"), layout,
                                      options_with(8, PipelineSchedule::one_f_one_b), 1);
  const Program many = pipeline().make(find_model("gpt3-175b"), layout,
                                       options_with(512, PipelineSchedule::one_f_one_b), 1);
  EXPECT_EQ(few.steps.size(), many.steps.size());
  EXPECT_LE(many.steps.size(), 8u);
}

TEST(Pipeline, SaysThatAGatedActivationIsReplaced) {
  const auto notes = [](Activation act) {
    return pipeline()
        .make(small_model(act), Layout::make({}, 1), options_with(1, PipelineSchedule::gpipe), 0)
        .notes;
  };
  EXPECT_EQ(notes(Activation::swiglu).size(), notes(Activation::gelu).size() + 1);
}

TEST(Pipeline, RefusesWhatDoesNotFit) {
  const Layout layout = Layout::make({.pp = 8}, 8);
  EXPECT_THROW(pipeline().make(small_model(), layout, options_with(2, PipelineSchedule::gpipe), 0),
               Error);
  EXPECT_THROW(pipeline().make(small_model(), Layout::make({}, 1),
                               options_with(0, PipelineSchedule::gpipe), 0),
               Error);
}

/// d/dX of sum(dY*Y) by finite differences.
TEST(Pipeline, ReferenceAgreesWithFiniteDifferences) {
  const Layout layout = Layout::make({}, 1);
  const PatternOptions options = options_with(2, PipelineSchedule::gpipe);
  const auto played = [&](const std::string& tensor, int slot, double by) {
    play::World world({pipeline().make_reference(small_model(), layout, options)});
    world.at(0, tensor, slot, 1, 2) += by;
    world.run();
    return world;
  };
  const auto loss = [](play::World world) {
    double sum = 0;
    for (int s = 0; s < 2; ++s) {
      for (Index r = 0; r < 8; ++r) {
        for (Index c = 0; c < 8; ++c) sum += world.at(0, "dY", s, r, c) * world.at(0, "Y", s, r, c);
      }
    }
    return sum;
  };
  play::World back = played("X", 0, 0);
  for (const std::string tensor : {"X", "W"}) {
    const double slope = (loss(played(tensor, 1, 1e-5)) - loss(played(tensor, 1, -1e-5))) / 2e-5;
    EXPECT_NEAR(back.at(0, "d" + tensor, 1, 1, 2), slope, 1e-6) << tensor;
  }
}

}  // namespace
}  // namespace weft
