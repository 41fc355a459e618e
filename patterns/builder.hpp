// What the pattern builders share: the usual tensors, the usual operations, and a list that steps
// are appended to.
//
//   StepList steps(program.steps, Direction::forward, Dimension::tp);
//   StepId g = steps.compute("Z = X A", gemm(x, a, z));
//   steps.communicate("AllGather Y", all_gather(group, y, out, counts), {{g}});
//
// Wrong: to leave `after` empty where the step reads what the other stream wrote.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "patterns/model.hpp"
#include "patterns/partition.hpp"
#include "patterns/pattern.hpp"
#include "patterns/program.hpp"

namespace weft {

/// Tokens of a micro-batch, T = s*b, with the model's sequence where the options have none. Throws
/// Error(usage) if that is below 1.
Index tokens_of(const ModelShape& model, const PatternOptions& options);
/// Layers L, the model's where the options have none. Throws Error(usage) if that is below 1.
int layers_of(const ModelShape& model, const PatternOptions& options);
/// Gated networks (swiglu) have no biases, so the option counts for the others only.
bool has_bias(const ModelShape& model, const PatternOptions& options);
/// Throws Error(usage) naming what the pattern has, for Direction::both of a pattern with separate
/// programs.
void require_one_way(std::string_view pattern, Direction direction);

/// [rows x cols] written by a step: an activation, a gradient of one, or scratch.
Tensor activation(std::string name, DType dtype, Index rows, Index cols);
/// An activation that is generated: uniform in [-1, 1].
Tensor generated(std::string name, DType dtype, Index rows, Index cols);
/// A weight matrix, generated uniform in +-sqrt(6/fan_in), which keeps variances from layer to
/// layer.
Tensor weight(std::string name, DType dtype, Index rows, Index cols, Index fan_in);
/// A weight gradient, written by a step.
Tensor gradient(std::string name, DType dtype, Index rows, Index cols);

// Changes of a tensor, to be put around it: where its block lies, how many slots it has, whether it
// is checked.
Tensor at_rows(Tensor tensor, Index global_rows, Index offset);
Tensor at_cols(Tensor tensor, Index global_cols, Index offset);
Tensor in_slots(Tensor tensor, int slots, int offset = 0);
Tensor checked(Tensor tensor, bool check = true);

/// `view` in the slot that two nested repeats select: first + per[0]*i + per[1]*j.
View in_slot(View view, int first, std::array<int, 2> per = {0, 0});
/// Columns [first, first + count) of a tensor.
View columns_of(const Program& program, TensorId id, Index first, Index count);
/// [rows x cols] elements of a flat tensor [1 x n], from `offset`.
View flat_block(TensorId id, Index offset, Index rows, Index cols);

struct GemmForm {
  bool trans_a = false, trans_b = false, accumulate = false;
  int ways = 1;  // Compute::ways
};
/// C (+)= op(A)*op(B).
Compute gemm(View a, View b, View c, GemmForm form = {});
/// Any other operation; further settings are made on the result.
Compute compute_op(ComputeKind kind, std::vector<View> in, std::vector<View> out);
/// Y = act(Z), or silu(Zg)*Zu from two inputs.
Compute activate(Activation act, std::vector<View> z, View y);
/// dZ = dY * act'(Z), for one or two Z.
Compute activate_grad(Activation act, View dy, const std::vector<View>& z, std::vector<View> dz);

Collective all_gather(GroupId group, View in, View out, std::vector<Index> counts);
Collective reduce_scatter(GroupId group, View in, View out, std::vector<Index> counts);
Collective all_reduce(GroupId group, View in, View out);

/// Appends steps to a program's `steps`, its `prologue` or the body of a repeat. Communication goes
/// to the comm stream.
class StepList {
 public:
  using After = std::vector<Dependency>;

  StepList(std::vector<Step>& steps, Direction direction, Dimension dim)
      : steps_(&steps), direction_(direction), dim_(dim) {}

  StepId compute(std::string label, Compute op, After after = {});
  StepId communicate(std::string label, Op op, After after = {});
  StepId repeat(std::string label, int count, std::vector<Step> body, After after = {});
  void turn(Direction direction) { direction_ = direction; }

 private:
  StepId append(Step step);

  std::vector<Step>* steps_;
  Direction direction_;
  Dimension dim_;
};

}  // namespace weft
