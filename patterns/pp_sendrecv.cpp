// Pipeline parallelism: L/p layers per stage; m micro-batches go forward and back through the
// stages.
//   forward   activation T*h*e to the next stage, m times; backward  its gradient to the previous
//   stage, m times 1F1B      warm-up of min(m, p-r-1) forwards, then one forward one backward, then
//   the rest of the backwards GPipe     is the same with a warm-up of m: all forwards, then all
//   backwards
// Bubble (p-1)/m of the ideal time, (p-1)/(m+p-1) of the whole. A stage keeps the inputs of the
// micro-batches in flight, min(m, warm-up + 1). With sequence parallelism of tp a message is this
// rank's T*h*e/t.
#include <fmt/format.h>

#include <algorithm>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/pipeline_stage.hpp"
#include "patterns/registry.hpp"

namespace weft {

namespace {

/// What all stages agree on.
struct Pipeline {
  int layers = 0, stages = 1, micro_batches = 1;
  Index tokens = 0;
  int split = 1;  // tensor-parallel ranks among which the tokens of a message are split

  Pipeline(const ModelShape& model, const Layout& layout, const PatternOptions& options)
      : layers(layers_of(model, options)),
        stages(layout.size(Dimension::pp)),
        micro_batches(options.micro_batches),
        tokens(tokens_of(model, options)),
        split(options.sequence_parallel ? layout.size(Dimension::tp) : 1) {
    if (micro_batches < 1) {
      fail_usage(
          fmt::format("{} micro-batches; choose --micro-batches of 1 or more", micro_batches));
    }
    if (layers < stages) {
      fail_usage(
          fmt::format("{} layers cannot fill {} pipeline stages; choose --pp {} or less, "
                      "or --layers {} or more",
                      layers, stages, layers, stages));
    }
    divide_exactly(tokens, split, "tokens", "tp");
  }
};

/// Micro-batches that go forward before the first comes back.
int warm_up_of(const Pipeline& pipeline, PipelineSchedule schedule, int stage) {
  if (schedule == PipelineSchedule::gpipe) return pipeline.micro_batches;
  return std::min(pipeline.micro_batches, pipeline.stages - stage - 1);
}

StageShape shape_of(const Pipeline& pipeline, const ModelShape& model, const Coordinates& at,
                    int warm_up) {
  const Part layers = part_of(pipeline.layers, pipeline.stages, at.pp);
  StageShape shape;
  shape.layers = static_cast<int>(layers.size);
  shape.first_layer = static_cast<int>(layers.begin);
  shape.first = at.pp == 0;
  shape.last = at.pp + 1 == pipeline.stages;
  shape.micro_batches = pipeline.micro_batches;
  shape.in_flight = std::min(pipeline.micro_batches, warm_up + 1);
  shape.rows = part_of(pipeline.tokens, pipeline.split, pipeline.split > 1 ? at.tp : 0);
  shape.tokens = pipeline.tokens;
  shape.hidden = model.hidden;
  shape.weight_sums_complete = pipeline.split == 1;
  return shape;
}

/// The order of forwards, backwards and messages of one stage. Messages that both neighbours wait
/// to exchange are posted together, so that no buffering is needed: the output with the gradient
/// that comes back for an earlier micro-batch, and a gradient with the next input.
class StageSchedule {
 public:
  StageSchedule(const ModelShape& model, const Layout& layout, const PatternOptions& options,
                Rank rank);
  Program build();

 private:
  using After = StepList::After;

  bool has_previous() const { return stage_index_ > 0; }
  bool has_next() const { return stage_index_ + 1 < pipeline_.stages; }
  SendRecv message(bool send, int peer, View data) const;
  SendRecv receive_input(int first) const;
  SendRecv send_output(int first) const;
  SendRecv receive_gradient(int first) const;
  SendRecv send_gradient(int first) const;

  std::vector<Step> warm_up_round() const;
  std::vector<Step> steady_round(int first, bool leading) const;
  std::vector<Step> cool_down_round(int first, bool accumulate) const;
  void steady(int rounds);
  void cool_down(int first, int rounds);
  void block(std::string label, int rounds, std::vector<Step> body, bool after_previous);
  void add_notes(const ModelShape& model, const PatternOptions& options);

  Pipeline pipeline_;
  int stage_index_, warm_up_;
  Program program_;
  GroupId group_;
  PipelineStage stage_;
};

StageSchedule::StageSchedule(const ModelShape& model, const Layout& layout,
                             const PatternOptions& options, Rank rank)
    : pipeline_(model, layout, options),
      stage_index_(layout.coordinates(rank).pp),
      warm_up_(warm_up_of(pipeline_, options.schedule, stage_index_)),
      group_(program_.add(layout.group(Dimension::pp, rank))),
      stage_(program_, model, options,
             shape_of(pipeline_, model, layout.coordinates(rank), warm_up_)) {
  add_notes(model, options);
}

SendRecv StageSchedule::message(bool send, int peer, View data) const {
  SendRecv op;
  op.send = send;
  op.group = group_;
  op.peer = peer;
  op.data = data;
  return op;
}
SendRecv StageSchedule::receive_input(int first) const {
  return message(false, stage_index_ - 1, stage_.input(first));
}
SendRecv StageSchedule::send_output(int first) const {
  return message(true, stage_index_ + 1, stage_.output(first));
}
SendRecv StageSchedule::receive_gradient(int first) const {
  return message(false, stage_index_ + 1, stage_.output_gradient(first));
}
SendRecv StageSchedule::send_gradient(int first) const {
  return message(true, stage_index_ - 1, stage_.input_gradient(first));
}

/// recv input, forward, send output. Slots are fresh, so that a receive need not wait for
/// computation.
std::vector<Step> StageSchedule::warm_up_round() const {
  std::vector<Step> body;
  StepList steps(body, Direction::forward, Dimension::pp);
  After ready;
  if (has_previous()) ready = {{steps.communicate("recv input", receive_input(0))}};
  const StepId done = stage_.forward(steps, 0, std::move(ready));
  if (has_next()) steps.communicate("send output", send_output(0), {{done}});
  return body;
}

/// Forward of micro-batch warm_up + first + i, backward of first + i. The gradient of the round
/// before leaves while the next input arrives, once that round's backward has released the slot.
std::vector<Step> StageSchedule::steady_round(int first, bool leading) const {
  std::vector<Step> body;
  StepList steps(body, Direction::forward, Dimension::pp);
  const int ahead = warm_up_ + first;
  After input, gradient;
  if (has_previous() && leading) {
    input = {{steps.communicate("recv input", receive_input(ahead))}};
  } else if (has_previous()) {
    steps.turn(Direction::backward);
    input = {{steps.communicate("send gradient, recv input",
                                PostedTogether{{send_gradient(first - 1), receive_input(ahead)}})}};
  }
  const StepId forward = stage_.forward(steps, ahead, input);
  if (has_next()) {
    gradient = {{steps.communicate("send output, recv gradient",
                                   PostedTogether{{send_output(ahead), receive_gradient(first)}},
                                   {{forward}})}};
  }
  const StepId backward = stage_.backward(steps, first, !leading, std::move(gradient));
  if (has_previous() && !leading) {
    body[static_cast<std::size_t>(input.front().step)].after = {{backward, 1}};
  }
  return body;
}

/// recv gradient, backward, send gradient; the gradient's memory is free when the round before has
/// used and sent it.
std::vector<Step> StageSchedule::cool_down_round(int first, bool accumulate) const {
  std::vector<Step> body;
  StepList steps(body, Direction::backward, Dimension::pp);
  After ready;
  if (has_next()) ready = {{steps.communicate("recv gradient", receive_gradient(first))}};
  const std::size_t begin = body.size();
  const StepId done = stage_.backward(steps, first, accumulate, ready);
  if (has_next()) body[0].after = {{done, 1}};
  if (has_previous()) {
    const StepId sent = steps.communicate("send gradient", send_gradient(first), {{done}});
    body[begin].after.push_back({sent, 1});
  }
  return body;
}

void StageSchedule::block(std::string label, int rounds, std::vector<Step> body,
                          bool after_previous) {
  After after;
  if (after_previous) after = {{static_cast<StepId>(program_.steps.size()) - 1}};
  StepList(program_.steps, Direction::both, Dimension::pp)
      .repeat(std::move(label), rounds, std::move(body), std::move(after));
}

void StageSchedule::steady(int rounds) {
  block("one forward, one backward (first)", 1, steady_round(0, true), false);
  if (rounds > 1) {
    block("one forward, one backward", rounds - 1, steady_round(1, false), true);
  }
  if (!has_previous()) return;
  StepList(program_.steps, Direction::backward, Dimension::pp)
      .communicate("send gradient",
                   message(true, stage_index_ - 1,
                           [this, rounds] {
                             View view = stage_.input_gradient(rounds - 1);
                             view.slot_per = {0, 0};
                             return view;
                           }()),
                   {{static_cast<StepId>(program_.steps.size()) - 1}});
}

void StageSchedule::cool_down(int first, int rounds) {
  if (first == 0) {
    block("backward (first)", 1, cool_down_round(0, false), false);
    --rounds;
    ++first;
  }
  if (rounds > 0) block("backward", rounds, cool_down_round(first, true), true);
}

Program StageSchedule::build() {
  const int steady_rounds = pipeline_.micro_batches - warm_up_;
  if (warm_up_ > 0) block("forward", warm_up_, warm_up_round(), false);
  if (steady_rounds > 0) steady(steady_rounds);
  if (warm_up_ > 0) cool_down(steady_rounds, warm_up_);
  return std::move(program_);
}

void StageSchedule::add_notes(const ModelShape& model, const PatternOptions& options) {
  program_.notes.push_back(fmt::format(
      "stage {} of {}, {} schedule, warm-up {}, {} micro-batches; bubble {}/{} of the ideal time",
      stage_index_, pipeline_.stages,
      options.schedule == PipelineSchedule::gpipe ? "GPipe" : "1F1B", warm_up_,
      pipeline_.micro_batches, pipeline_.stages - 1, pipeline_.micro_batches));
  if (model.act == Activation::swiglu) {
    program_.notes.push_back(
        "layers are square, with one matrix: gelu stands for the gated activation");
  }
  if (pipeline_.split > 1) {
    program_.notes.push_back(fmt::format(
        "tokens are split over tp {}: a message is 1/{} of T*h*e, and dW lacks the sum over tp",
        pipeline_.split, pipeline_.split));
  }
}

Program make(const ModelShape& model, const Layout& layout, const PatternOptions& options,
             Rank rank) {
  return StageSchedule(model, layout, options, rank).build();
}

/// All layers on one rank: every forward, then every backward, nothing overwritten.
Program make_reference(const ModelShape& model, const Layout& layout,
                       const PatternOptions& options) {
  const Pipeline pipeline(model, layout, options);
  StageShape shape;
  shape.layers = pipeline.layers;
  shape.micro_batches = shape.in_flight = shape.gradients_kept = pipeline.micro_batches;
  shape.tokens = pipeline.tokens;
  shape.rows = {0, pipeline.tokens};
  shape.hidden = model.hidden;
  Program p;
  const PipelineStage stage(p, model, options, shape);
  StepList steps(p.steps, Direction::both, Dimension::pp);
  const auto rounds = [&](std::string label, int count, auto&& add) {
    std::vector<Step> body;
    StepList inner(body, Direction::forward, Dimension::pp);
    add(inner);
    steps.repeat(std::move(label), count, std::move(body));
  };
  rounds("forward", pipeline.micro_batches, [&](StepList& s) { stage.forward(s, 0, {}); });
  rounds("backward (first)", 1, [&](StepList& s) { stage.backward(s, 0, false, {}); });
  if (pipeline.micro_batches > 1) {
    rounds("backward", pipeline.micro_batches - 1,
           [&](StepList& s) { stage.backward(s, 1, true, {}); });
  }
  return p;
}

std::vector<std::string> option_texts(const PatternOptions& options) {
  return {
      fmt::format("bias={}", options.bias),
      fmt::format("schedule={}", options.schedule == PipelineSchedule::gpipe ? "gpipe" : "1f1b"),
      fmt::format("sequence_parallel={}", options.sequence_parallel)};
}

}  // namespace

const Pattern& pp_sendrecv_pattern() {
  static const Pattern pattern{
      .name = "pp-sendrecv",
      .summary = "pipeline stages: activations to the next, gradients to the previous stage",
      .dim = Dimension::pp,
      .directions = {Direction::both},
      .sweep = {},
      .default_model = "tiny",
      .make = make,
      .make_reference = make_reference,
      .option_texts = option_texts};
  return pattern;
}

}  // namespace weft
