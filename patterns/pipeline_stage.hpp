// What one pipeline stage keeps and computes: its layers forward and back for one micro-batch at a
// time.
#pragma once

#include <vector>

#include "patterns/builder.hpp"

namespace weft {

/// Sizes of a stage. Layers are Y = act(X W + b), [T x h] [h x h].
struct StageShape {
  int layers = 0, first_layer = 0;
  bool first = true, last = true;  // of the pipeline
  int micro_batches = 1;
  int in_flight = 1;  // micro-batches whose layer inputs are kept
  int gradients_kept =
      1;      // micro-batches whose gradients of activations are kept; 1 is enough to compute
  Part rows;  // tokens of this rank
  Index tokens = 0;  // of all ranks of the tensor-parallel group
  Index hidden = 0;
  bool weight_sums_complete =
      true;  // false: rows are split, so dW lacks the other ranks' tokens and is not checked
};

/// Steps of a micro-batch are made for the body of a repeat over micro-batches (i), layers stand in
/// a repeat inside (j); `first` is the micro-batch of round 0. A single round is a repeat of one,
/// so that slots always follow (i, j).
class PipelineStage {
 public:
  /// Adds the tensors to `program`, which must outlive this.
  PipelineStage(Program& program, const ModelShape& model, const PatternOptions& options,
                const StageShape& shape);

  /// Forward of micro-batch first + i; the first stage loads X, the last one stores Y. Returns the
  /// last step.
  StepId forward(StepList& steps, int first, StepList::After ready) const;
  /// Backward of micro-batch first + i; dW, db are summed over micro-batches, where the first one
  /// must not accumulate. The last stage loads dY, the first one stores dX. Returns the last step.
  StepId backward(StepList& steps, int first, bool accumulate, StepList::After ready) const;

  View input(int first)
      const;  // [T x h] of micro-batch first + i, where the previous stage's output arrives
  View output(int first) const;
  View output_gradient(int first) const;  // where the next stage's gradient arrives
  View input_gradient(int first) const;

 private:
  /// Layer j counts up in forward, down in backward.
  struct Walk {
    int first_layer = 0;
    int per_layer = 1;
  };
  View activation_of(int first, int boundary, int per_layer) const;
  View gradient_of(int first, int boundary, int per_layer) const;
  View linear_of(TensorId id, int first, Walk walk) const;
  View of_layer(TensorId id, Walk walk) const;
  View of_micro_batch(TensorId id, int first) const;
  View slot_of(TensorId id, int first, int stride, int offset, int per_layer) const;
  std::vector<Step> forward_layer(int first) const;
  std::vector<Step> backward_layer(int first, bool accumulate) const;

  Program& program_;
  StageShape shape_;
  Activation act_;
  TensorId x_ = -1, y_ = -1, dy_ = -1, dx_ = -1;
  TensorId activation_ = -1, linear_ = -1, gradient_ = -1, dz_ = -1;
  TensorId w_ = -1, b_ = -1, dw_ = -1, db_ = -1, ones_ = -1;
};

}  // namespace weft
