// Gradient synchronisation of data parallelism: the backward pass of L feed-forward layers, whose
// gradients are summed over the data-parallel ranks in buckets, then the mean and an optimizer step
// per bucket.
//   AllReduce   of a bucket starts when the last of its gradients is ready; 2*Phi*g*(d-1)/d sent in
//   all
//   --zero      ReduceScatter of gradients, optimizer on this rank's shard, AllGather of
//   parameters:
//               Phi*(g+e)*(d-1)/d, Phi padded so that every bucket divides by d
// Updated parameters go to a second buffer, so that iterations are alike.
#include <fmt/format.h>

#include "patterns/backward_layers.hpp"
#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/gradient_plan.hpp"
#include "patterns/registry.hpp"

namespace weft {

namespace {

constexpr double kSgdRate = 0.01;
constexpr double kAdamRate = 0.001;

/// What the optimizer of one bucket works on: the whole bucket, or this rank's shard of it.
struct BucketState {
  View reduced, updated;
  View source;  // the parameters before the step
  std::optional<View> first_moment, second_moment;
};

/// Optimizer state lies in tensors of its own per bucket, "<name>.<bucket>", shards of [1 x
/// bucket].
class OptimizerStep {
 public:
  OptimizerStep(Program& program, const PatternOptions& options, int replicas)
      : program_(program), options_(options), replicas_(replicas) {}

  /// Adds the tensors of bucket `b`, `part` of it. `updated`: where the result goes.
  BucketState add(std::size_t b, const Bucket& bucket, Part part, TensorId parameters,
                  View updated) const {
    BucketState state;
    const auto tensor = [&](std::string_view name, DType dtype) {
      return at_cols(gradient(fmt::format("{}.{}", name, b), dtype, 1, part.size), bucket.elements,
                     part.begin);
    };
    state.reduced = program_.whole(program_.add(checked(tensor("reduced", options_.grad_dtype))));
    state.source = flat_block(parameters, bucket.offset + part.begin, 1, part.size);
    state.updated = updated;
    if (options_.optimizer == Optimizer::adam) {
      state.first_moment = add_zero(tensor("m", DType::f32));
      state.second_moment = add_zero(tensor("v", DType::f32));
    }
    return state;
  }

  /// mean of `sum` -> reduced, then one step from the source to `updated`. Returns the last step.
  StepId run(StepList& steps, std::size_t b, const BucketState& state, View sum,
             StepList::After after) const {
    Compute mean = compute_op(ComputeKind::scale, {sum}, {state.reduced});
    mean.factor = 1.0 / replicas_;
    StepId last =
        steps.compute(fmt::format("mean of bucket {}", b), std::move(mean), std::move(after));
    if (options_.optimizer == Optimizer::none && !options_.zero) return last;
    last = steps.compute(fmt::format("parameters of bucket {}", b),
                         compute_op(ComputeKind::copy, {state.source}, {state.updated}));
    if (options_.optimizer == Optimizer::none) return last;
    return steps.compute(fmt::format("optimizer of bucket {}", b), update(state));
  }

 private:
  View add_zero(Tensor tensor) const {
    tensor.fill = Fill::zero;
    return program_.whole(program_.add(std::move(tensor)));
  }

  Compute update(const BucketState& state) const {
    if (options_.optimizer == Optimizer::sgd) {
      Compute op = compute_op(ComputeKind::sgd, {state.updated, state.reduced}, {state.updated});
      op.factor = kSgdRate;
      return op;
    }
    const View m = *state.first_moment, v = *state.second_moment;
    Compute op =
        compute_op(ComputeKind::adam, {state.updated, state.reduced, m, v}, {state.updated, m, v});
    op.factor = kAdamRate;
    return op;
  }

  Program& program_;
  const PatternOptions& options_;
  int replicas_;
};

bool updates(const PatternOptions& options) {
  return options.zero || options.optimizer != Optimizer::none;
}

void check_options(const PatternOptions& options) {
  if (options.grad_dtype == DType::i32) {
    fail_usage("gradients cannot be stored as i32; choose --grad-dtype f32, bf16 or f16");
  }
}

class GradientSync {
 public:
  GradientSync(const ModelShape& model, const Layout& layout, const PatternOptions& options,
               Rank rank);
  Program build();

 private:
  Part part_of_bucket(const Bucket& bucket) const;
  View updated_of(std::size_t b, const Bucket& bucket, Part part);
  StepId reduce(StepList& steps, std::size_t b, StepId ready);
  void update(StepList& steps, std::size_t b);
  void add_notes(const Layout& layout);

  const PatternOptions& options_;
  GradientPlan plan_;
  Program program_;
  GroupId group_;
  int index_;
  BackwardLayers layers_;
  OptimizerStep optimizer_;
  TensorId updated_ = -1;
  std::vector<BucketState> states_;
  std::vector<StepId> reduced_;  // by bucket: the step that sums it
};

BackwardLayers::Rows rows_of_rank(Index tokens, int replicas, int index) {
  BackwardLayers::Rows rows;
  rows.count = tokens;
  rows.all = tokens * replicas;
  rows.first = tokens * index;
  return rows;
}

GradientSync::GradientSync(const ModelShape& model, const Layout& layout,
                           const PatternOptions& options, Rank rank)
    : options_(options),
      plan_(make_gradient_plan(model, layout, options)),
      group_(program_.add(layout.gradient_group(rank))),
      index_(program_.groups.front().ranks.index_of(rank)),
      layers_(program_, plan_, model, options,
              rows_of_rank(tokens_of(model, options), plan_.replicas, index_)),
      optimizer_(program_, options, plan_.replicas) {
  if (updates(options)) {
    updated_ = program_.add(checked(gradient("updated", options.dtype, 1, plan_.elements)));
  }
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets[b];
    const Part part = part_of_bucket(bucket);
    const View updated = updated_of(b, bucket, part);
    states_.push_back(optimizer_.add(b, bucket, part, layers_.parameters(), updated));
  }
  add_notes(layout);
}

Part GradientSync::part_of_bucket(const Bucket& bucket) const {
  if (!options_.zero) return {0, bucket.elements};
  return part_of(bucket.elements, plan_.replicas, index_);
}

View GradientSync::updated_of(std::size_t b, const Bucket& bucket, Part part) {
  if (!updates(options_)) return {};
  if (!options_.zero) return flat_block(updated_, bucket.offset, 1, bucket.elements);
  return program_.whole(program_.add(
      at_cols(gradient(fmt::format("updated_shard.{}", b), options_.dtype, 1, part.size),
              bucket.elements, part.begin)));
}

StepId GradientSync::reduce(StepList& steps, std::size_t b, StepId ready) {
  const Bucket& bucket = plan_.buckets[b];
  const View local = flat_block(layers_.gradients(), bucket.offset, 1, bucket.elements);
  if (!options_.zero) {
    return steps.communicate(fmt::format("AllReduce bucket {}", b),
                             all_reduce(group_, local, states_[b].reduced), {{ready}});
  }
  return steps.communicate(fmt::format("ReduceScatter bucket {}", b),
                           reduce_scatter(group_, local, states_[b].reduced,
                                          part_sizes(bucket.elements, plan_.replicas)),
                           {{ready}});
}

void GradientSync::update(StepList& steps, std::size_t b) {
  const BucketState& state = states_[b];
  const StepId done = optimizer_.run(steps, b, state, state.reduced, {{reduced_[b]}});
  if (!options_.zero) return;
  const Bucket& bucket = plan_.buckets[b];
  steps.communicate(
      fmt::format("AllGather parameters of bucket {}", b),
      all_gather(group_, state.updated, flat_block(updated_, bucket.offset, 1, bucket.elements),
                 part_sizes(bucket.elements, plan_.replicas)),
      {{done}});
}

Program GradientSync::build() {
  StepList before(program_.prologue, Direction::forward, Dimension::dp);
  layers_.forward(before);
  StepList steps(program_.steps, Direction::backward, Dimension::dp);
  layers_.backward(steps, [&](std::size_t parameter, StepId step) {
    const std::size_t b = reduced_.size();
    if (plan_.buckets[b].last == parameter) reduced_.push_back(reduce(steps, b, step));
  });
  for (std::size_t b = 0; b < states_.size(); ++b) update(steps, b);
  return std::move(program_);
}

void GradientSync::add_notes(const Layout& layout) {
  program_.notes.push_back(
      fmt::format("{} layers of {} x {}: {} parameters in {} buckets, {} of padding", plan_.layers,
                  plan_.hidden, plan_.ffn, plan_.elements - plan_.padding, plan_.buckets.size(),
                  plan_.padding));
  program_.notes.push_back(
      "dY of every layer is generated; layers follow one another by the order "
      "of the stream");
  if (layout.size(Dimension::tp) > 1) {
    program_.notes.push_back(
        "tensor-parallel ranks hold ffn/tp columns each; the sum of dX over tp "
        "belongs to weft-tp-allgather and is not repeated here");
  }
}

Program make(const ModelShape& model, const Layout& layout, const PatternOptions& options,
             Rank rank) {
  check_options(options);
  return GradientSync(model, layout, options, rank).build();
}

/// All ranks' tokens on one rank: gradients are sums over all rows, and the optimizer sees whole
/// buckets.
Program make_reference(const ModelShape& model, const Layout& layout,
                       const PatternOptions& options) {
  check_options(options);
  const GradientPlan plan = make_gradient_plan(model, layout, options);
  Program p;
  BackwardLayers::Rows rows = rows_of_rank(tokens_of(model, options) * plan.replicas, 1, 0);
  rows.ways = plan.replicas;
  rows.scratch_slots = plan.layers;
  const BackwardLayers layers(p, plan, model, options, rows);
  const OptimizerStep optimizer(p, options, plan.replicas);
  const TensorId updated =
      p.add(checked(gradient("updated", options.dtype, 1, plan.elements), updates(options)));
  StepList before(p.prologue, Direction::forward, Dimension::dp);
  layers.forward(before);
  StepList steps(p.steps, Direction::backward, Dimension::dp);
  layers.backward(steps, [](std::size_t, StepId) {});
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    const View result = flat_block(updated, bucket.offset, 1, bucket.elements);
    const BucketState state =
        optimizer.add(b, bucket, {0, bucket.elements}, layers.parameters(), result);
    optimizer.run(steps, b, state,
                  flat_block(layers.gradients(), bucket.offset, 1, bucket.elements), {});
  }
  return p;
}

std::string_view name_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::none:
      return "none";
    case Optimizer::sgd:
      return "sgd";
    case Optimizer::adam:
      return "adam";
  }
  return "?";
}

std::vector<std::string> option_texts(const PatternOptions& options) {
  return {fmt::format("bias={}", options.bias), fmt::format("bucket_mib={}", options.bucket_mib),
          fmt::format("grad_dtype={}", to_string(options.grad_dtype)),
          fmt::format("optimizer={}", name_of(options.optimizer)),
          fmt::format("zero={}", options.zero)};
}

}  // namespace

const Pattern& dp_gradsync_pattern() {
  static const Pattern pattern{
      .name = "dp-gradsync",
      .summary = "data-parallel gradient sync: bucketed AllReduce, or ReduceScatter and AllGather",
      .dim = Dimension::dp,
      .directions = {Direction::backward},
      .sweep = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
                CollectiveKind::all_gather},
      .default_model = "tiny",
      .make = make,
      .make_reference = make_reference,
      .option_texts = option_texts};
  return pattern;
}

}  // namespace weft
