// A mixture-of-experts layer: router, permutation, expert networks, weighted sum, and the way back.
// The same steps make the program of one rank, whose rows are exchanged between the ranks, and the
// unsharded reference, whose rows stay.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "patterns/builder.hpp"
#include "patterns/expert_routing.hpp"

namespace weft {

class ExpertLayer {
 public:
  /// The share of the rank that is `index` in `group`.
  ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
              const ExpertRouting& routing, const Group& group, int index);
  /// The whole layer on one rank.
  ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
              const ExpertRouting& routing);

  /// X -> Y, every tensor that backward needs kept. Y is checked if `check`.
  void forward(StepList& steps, bool check);
  /// dY -> dX and the gradients of experts and router, after forward() in the prologue.
  void backward(StepList& steps);

 private:
  /// Which part of the layer a program holds.
  struct Share {
    Index tokens = 0, first = 0, all = 0;
    Index sent = 0,
          received = 0;  // rows: tokens*k, and what arrives (the capacity where the router decides)
    int first_expert = 0, experts = 0;  // held here
    int rank = -1;                      // in the group; -1: the whole layer
  };
  using After = StepList::After;

  ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
              const ExpertRouting& routing, Share share, std::optional<GroupId> group);
  void add_weights();
  void add_routing();
  View whole(TensorId id) const { return program_.whole(id); }
  std::vector<View> whole(const std::vector<TensorId>& ids) const;
  Tensor of_tokens(Tensor tensor) const;   // rows are this rank's tokens
  Tensor of_experts(Tensor tensor) const;  // rows are stacked experts
  TensorId rows(std::string name, Index count, Index width);
  View counts_here() const { return whole(group_ ? received_counts_ : counts_); }

  void route(StepList& steps);
  void exchange_counts(StepList& steps, StepId counted);
  After exchange(StepList& steps, std::string label, TensorId from, TensorId to, bool to_experts,
                 StepId ready);
  Collective exchange_op(View from, View to, bool to_experts) const;
  void experts_forward(StepList& steps, After arrived);
  StepId experts_backward(StepList& steps, After arrived);
  void expert_gradients(StepList& steps);
  void router_backward(StepList& steps);
  void router_gradient(StepList& steps, View dlogits);
  void add_gradients();
  Compute grouped(ComputeKind kind, View a, View b, View out, bool transposed = false) const;

  Program& program_;
  const PatternOptions& options_;
  const ExpertRouting& routing_;
  Share share_;
  std::optional<GroupId> group_;
  Index hidden_, ffn_;
  Activation act_;
  std::vector<std::string> first_;  // matrices before the activation
  TensorId x_ = -1, y_ = -1, router_ = -1, bias_ = -1, logits_ = -1, probabilities_ = -1;
  TensorId indices_ = -1, gate_ = -1, counts_ = -1, received_counts_ = -1;
  TensorId sent_ = -1, received_ = -1, results_ = -1, returned_ = -1, w2_ = -1, h_ = -1;
  std::vector<TensorId> w1_, z_;
  TensorId dy_ = -1, dx_ = -1, dgate_ = -1, dreturned_ = -1, dresults_ = -1, dreceived_ = -1;
  TensorId dsent_ = -1, dh_ = -1, dw2_ = -1;
  std::vector<TensorId> dw1_, dz_;
};

}  // namespace weft
