// The way back through a mixture-of-experts layer. The gradients of the experts' weights are
// computed while the gradients of the rows travel back, those of the router while the first
// exchange runs.
#include <utility>

#include "patterns/expert_layer.hpp"

namespace weft {

void ExpertLayer::add_gradients() {
  const DType dtype = options_.dtype;
  const bool any = share_.tokens > 0;
  dy_ = program_.add(of_tokens(generated("dY", dtype, share_.tokens, hidden_)));
  dx_ = program_.add(of_tokens(checked(activation("dX", dtype, share_.tokens, hidden_), any)));
  dgate_ = program_.add(of_tokens(activation("dgate", DType::f32, share_.tokens, routing_.top_k)));
  dreturned_ = rows("d returned results", share_.sent, hidden_);
  dresults_ = group_ ? rows("d expert results", share_.received, hidden_) : dreturned_;
  dh_ = rows("dH", share_.received, ffn_);
  dreceived_ = rows("d received rows", share_.received, hidden_);
  dsent_ = group_ ? rows("d sent rows", share_.sent, hidden_) : dreceived_;
  for (const std::string& name : first_) {
    dz_.push_back(rows("dZ_" + name, share_.received, ffn_));
    dw1_.push_back(program_.add(
        of_experts(checked(gradient("d" + name, dtype, share_.experts * hidden_, ffn_)))));
  }
  dw2_ = program_.add(of_experts(checked(gradient("dW2", dtype, share_.experts * ffn_, hidden_))));
}

/// The router is replicated: its gradient is that of this rank's tokens, slot `rank` of all; data
/// parallelism sums them.
void ExpertLayer::router_gradient(StepList& steps, View dlogits) {
  const Tensor local = checked(gradient("d router", DType::f32, hidden_, routing_.experts));
  const GemmForm form{.trans_a = true};
  if (share_.rank >= 0) {
    const View out = whole(program_.add(in_slots(local, 1, share_.rank)));
    steps.compute("d router = X^T dlogits", gemm(whole(x_), dlogits, out, form));
    return;
  }
  const TensorId all = program_.add(in_slots(local, routing_.ranks));
  const auto block = [this](TensorId id, int rank) {
    return rows_of(program_.tensors[static_cast<std::size_t>(id)], id, routing_.first_token(rank),
                   routing_.tokens[static_cast<std::size_t>(rank)]);
  };
  for (int rank = 0; rank < routing_.ranks; ++rank) {
    steps.compute("d router = X^T dlogits", gemm(block(x_, rank), block(dlogits.tensor, rank),
                                                 in_slot(whole(all), rank), form));
  }
}

/// Through the selection and the softmax to the router, and its share of dX.
void ExpertLayer::router_backward(StepList& steps) {
  const Index experts = routing_.experts;
  const View dp =
      whole(program_.add(activation("d probabilities", DType::f32, share_.tokens, experts)));
  const View dlogits =
      whole(program_.add(activation("dlogits", DType::f32, share_.tokens, experts)));
  Compute select = compute_op(ComputeKind::top_k_grad,
                              {whole(dgate_), whole(indices_), whole(probabilities_)}, {dp});
  select.experts = routing_.experts;
  select.normalize = routing_.top_k > 1;
  steps.compute("d probabilities", std::move(select));
  steps.compute("dlogits",
                compute_op(ComputeKind::softmax_grad, {dp, whole(probabilities_)}, {dlogits}));
  router_gradient(steps, dlogits);
  steps.compute("dX = dlogits W_router^T",
                gemm(dlogits, whole(router_), whole(dx_), {.trans_b = true}));
}

StepId ExpertLayer::experts_backward(StepList& steps, After arrived) {
  steps.compute("dH = d results W2^T",
                grouped(ComputeKind::grouped_gemm, whole(dresults_), whole(w2_), whole(dh_), true),
                std::move(arrived));
  steps.compute("dZ = dH * act'(Z)", activate_grad(act_, whole(dh_), whole(z_), whole(dz_)));
  const View sum = whole(dreceived_);
  StepId last =
      steps.compute("d rows = dZ " + first_[0] + "^T",
                    grouped(ComputeKind::grouped_gemm, whole(dz_[0]), whole(w1_[0]), sum, true));
  for (std::size_t i = 1; i < w1_.size(); ++i) {
    const View more = whole(rows("d rows of " + first_[i], share_.received, hidden_));
    steps.compute("dZ " + first_[i] + "^T",
                  grouped(ComputeKind::grouped_gemm, whole(dz_[i]), whole(w1_[i]), more, true));
    last = steps.compute("d rows += dZ " + first_[i] + "^T",
                         compute_op(ComputeKind::add, {sum, more}, {sum}));
  }
  return last;
}

void ExpertLayer::expert_gradients(StepList& steps) {
  steps.compute("dW2 = H^T d results",
                grouped(ComputeKind::grouped_wgrad, whole(h_), whole(dresults_), whole(dw2_)));
  for (std::size_t i = 0; i < w1_.size(); ++i) {
    steps.compute(
        "d" + first_[i] + " = rows^T dZ",
        grouped(ComputeKind::grouped_wgrad, whole(received_), whole(dz_[i]), whole(dw1_[i])));
  }
}

void ExpertLayer::backward(StepList& steps) {
  add_gradients();
  const bool any = share_.tokens > 0, router = any && !routing_.from_matrix;
  StepId split = -1;
  if (any) {
    Compute op = compute_op(ComputeKind::unpermute_grad,
                            {whole(dy_), whole(returned_), whole(indices_), whole(gate_)},
                            {whole(dreturned_), whole(dgate_)});
    op.experts = routing_.experts;
    split = steps.compute("d results, dgate", std::move(op));
  }
  After arrived = exchange(steps, "AllToAllV d results", dreturned_, dresults_, true, split);
  if (router) router_backward(steps);
  const StepId computed = experts_backward(steps, std::move(arrived));
  After back = exchange(steps, "AllToAllV d rows", dreceived_, dsent_, false, computed);
  expert_gradients(steps);
  if (!any) return;
  Compute sum =
      compute_op(ComputeKind::permute_grad, {whole(dsent_), whole(indices_)}, {whole(dx_)});
  sum.experts = routing_.experts;
  sum.accumulate = router;
  steps.compute(router ? "dX += rows of each token" : "dX = rows of each token", std::move(sum),
                std::move(back));
}

}  // namespace weft
