// The backward pass of a stack of feed-forward layers over one parameter and one gradient buffer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "patterns/builder.hpp"
#include "patterns/gradient_plan.hpp"

namespace weft {

/// H = act(X W1 + b1), Y = H W2 + b2 (or the gated form), [T x h] -> [T x f] -> [T x h], for every
/// layer of the plan. X and dY of every layer are generated, so that each layer can be checked by
/// itself; the order of the stream keeps the layers one after the other.
class BackwardLayers {
 public:
  struct Rows {
    Index count = 0, all = 0, first = 0;  // of this rank, of all ranks, where this rank's begin
    int ways = 1;                         // ranks that share a sum over all rows (reference)
    int scratch_slots = 1;                // copies of what is needed for one layer only
  };

  /// Adds the tensors. `program` and `plan` must outlive this.
  BackwardLayers(Program& program, const GradientPlan& plan, const ModelShape& model,
                 const PatternOptions& options, Rows rows);

  /// What forward leaves for backward: Z and H.
  void forward(StepList& steps) const;
  /// Calls `ready(parameter, step)` as each gradient is there, in the order of the plan.
  void backward(StepList& steps,
                const std::function<void(std::size_t parameter, StepId step)>& ready) const;

  TensorId parameters() const { return parameters_; }
  TensorId gradients() const { return gradients_; }

 private:
  using Ready = std::function<void(std::size_t, StepId)>;

  View at(TensorId id, int layer) const;
  std::vector<View> at(const std::vector<TensorId>& ids, int layer) const;
  View block(TensorId buffer, const std::string& name, int layer) const;
  void backward_layer(StepList& steps, int layer, const Ready& ready) const;
  void weight_gradient(StepList& steps, View input, View d, const std::string& name, int layer,
                       const Ready& ready) const;
  void bias_gradient(StepList& steps, View d, const std::string& name, int layer,
                     const Ready& ready) const;
  void input_gradient(StepList& steps, int layer) const;

  Program& program_;
  const GradientPlan& plan_;
  Activation act_;
  int ways_;
  bool bias_;
  std::vector<std::string> first_;  // matrices before the activation
  TensorId parameters_ = -1, gradients_ = -1;
  TensorId x_ = -1, h_ = -1, dy_ = -1, dh_ = -1, dx_ = -1;
  std::vector<TensorId> z_, dz_;
};

}  // namespace weft
