#include "patterns/expert_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft {

ExpertLayer::ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
                         const ExpertRouting& routing, const Group& group, int index)
    : ExpertLayer(program, model, options, routing,
                  {.tokens = routing.tokens[static_cast<std::size_t>(index)],
                   .first = routing.first_token(index),
                   .all = routing.all_tokens(),
                   .sent = routing.rows_sent(index),
                   .received = routing.rows_received(index),
                   .first_expert = index * routing.experts_per_rank(),
                   .experts = routing.experts_per_rank(),
                   .rank = index},
                  program.add(group)) {}

ExpertLayer::ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
                         const ExpertRouting& routing)
    : ExpertLayer(program, model, options, routing,
                  {.tokens = routing.all_tokens(),
                   .first = 0,
                   .all = routing.all_tokens(),
                   .sent = routing.all_tokens() * routing.top_k,
                   .received = routing.all_tokens() * routing.top_k,
                   .first_expert = 0,
                   .experts = routing.experts,
                   .rank = -1},
                  std::nullopt) {}

ExpertLayer::ExpertLayer(Program& program, const ModelShape& model, const PatternOptions& options,
                         const ExpertRouting& routing, Share share, std::optional<GroupId> group)
    : program_(program),
      options_(options),
      routing_(routing),
      share_(share),
      group_(group),
      hidden_(model.hidden),
      ffn_(model.ffn),
      act_(model.act),
      first_(model.act == Activation::swiglu ? std::vector<std::string>{"W_gate", "W_up"}
                                             : std::vector<std::string>{"W1"}) {
  x_ = program_.add(of_tokens(generated("X", options.dtype, share.tokens, hidden_)));
  add_routing();
  sent_ = rows("rows to send", share.sent, hidden_);
  received_ = group_ ? rows("received rows", share.received, hidden_) : sent_;
  for (const std::string& name : first_) {
    z_.push_back(rows("Z_" + name, share.received, ffn_));
  }
  h_ = rows("H", share.received, ffn_);
  results_ = rows("expert results", share.received, hidden_);
  returned_ = group_ ? rows("returned results", share.sent, hidden_) : results_;
  add_weights();
}

/// Every tensor has a row at least, so that a rank without tokens has memory for its empty
/// messages.
TensorId ExpertLayer::rows(std::string name, Index count, Index width) {
  Tensor tensor = activation(std::move(name), options_.dtype, std::max<Index>(1, count), width);
  if (count == 0) tensor.fill = Fill::zero;
  return program_.add(std::move(tensor));
}

Tensor ExpertLayer::of_tokens(Tensor tensor) const {
  const Index all = std::max<Index>(1, share_.all);
  tensor.rows = std::max<Index>(1, tensor.rows);
  return at_rows(std::move(tensor), all, std::min(share_.first, all - tensor.rows));
}

Tensor ExpertLayer::of_experts(Tensor tensor) const {
  const Index each = tensor.rows / share_.experts;
  return at_rows(std::move(tensor), each * routing_.experts, each * share_.first_expert);
}

void ExpertLayer::add_weights() {
  const DType dtype = options_.dtype;
  const Index n = share_.experts;
  for (const std::string& name : first_) {
    w1_.push_back(program_.add(of_experts(weight(name, dtype, n * hidden_, ffn_, hidden_))));
  }
  w2_ = program_.add(of_experts(weight("W2", dtype, n * ffn_, hidden_, ffn_)));
}

/// Router arithmetic is f32 whatever the layer stores: with fewer bits many gates would be equal.
void ExpertLayer::add_routing() {
  const Index experts = routing_.experts, k = routing_.top_k;
  Tensor indices = activation("indices", DType::i32, share_.tokens, k);
  Tensor gate = activation("gate", DType::f32, share_.tokens, k);
  if (routing_.from_matrix) {
    indices.fill = Fill::values;
    for (int r = 0; r < routing_.ranks; ++r) {
      if (share_.rank >= 0 && r != share_.rank) continue;
      const std::vector<std::int32_t> chosen = routing_.choices(r);
      indices.values.insert(indices.values.end(), chosen.begin(), chosen.end());
    }
    if (indices.values.empty()) indices.values = {0};
    gate.fill = Fill::constant;
  } else {
    router_ = program_.add(weight("router", DType::f32, hidden_, experts, hidden_));
    Tensor bias = gradient("gate bias", DType::f32, 1, experts);
    bias.fill = Fill::zipf_bias;
    bias.scale = options_.skew;
    bias_ = program_.add(std::move(bias));
    logits_ = program_.add(activation("logits", DType::f32, share_.tokens, experts));
    probabilities_ = program_.add(activation("probabilities", DType::f32, share_.tokens, experts));
  }
  indices_ = program_.add(of_tokens(std::move(indices)));
  gate_ = program_.add(of_tokens(std::move(gate)));
  Tensor counts = activation("counts", DType::i32, 1, experts);
  if (share_.tokens == 0) counts.fill = Fill::zero;
  counts_ = program_.add(std::move(counts));
  if (group_)
    received_counts_ = program_.add(activation("received counts", DType::i32, 1, experts));
}

std::vector<View> ExpertLayer::whole(const std::vector<TensorId>& ids) const {
  std::vector<View> views;
  for (TensorId id : ids) views.push_back(whole(id));
  return views;
}

Compute ExpertLayer::grouped(ComputeKind kind, View a, View b, View out, bool transposed) const {
  Compute op = compute_op(kind, {a, b, counts_here()}, {out});
  op.experts = share_.experts;
  op.trans_b = transposed;
  if (kind == ComputeKind::grouped_wgrad && !group_) op.ways = routing_.ranks;
  return op;
}

/// Scores, the k best experts of every token and their weights. A single expert keeps its
/// probability, as in Switch.
void ExpertLayer::route(StepList& steps) {
  if (routing_.from_matrix) return;
  steps.compute("logits = X W_router", gemm(whole(x_), whole(router_), whole(logits_)));
  steps.compute("logits = logits + gate bias",
                compute_op(ComputeKind::bias, {whole(logits_), whole(bias_)}, {whole(logits_)}));
  steps.compute("probabilities = softmax",
                compute_op(ComputeKind::softmax, {whole(logits_)}, {whole(probabilities_)}));
  Compute select =
      compute_op(ComputeKind::top_k, {whole(probabilities_)}, {whole(indices_), whole(gate_)});
  select.experts = routing_.experts;
  select.normalize = routing_.top_k > 1;
  steps.compute("top-k", std::move(select));
}

/// Every rank tells every other how many rows each of its experts will get.
void ExpertLayer::exchange_counts(StepList& steps, StepId counted) {
  if (!group_) return;
  Collective op;
  op.kind = CollectiveKind::all_to_all_v;
  op.group = *group_;
  op.in = whole(counts_);
  op.out = whole(received_counts_);
  op.counts.assign(static_cast<std::size_t>(routing_.ranks), share_.experts);
  op.recv_counts = op.counts;
  steps.communicate("AllToAll counts", std::move(op), counted < 0 ? After{} : After{{counted, 0}});
}

/// Rows to the ranks of their experts, or back. With a matrix the sizes are known before the run.
Collective ExpertLayer::exchange_op(View from, View to, bool to_experts) const {
  Collective op;
  op.kind = CollectiveKind::all_to_all_v;
  op.group = *group_;
  op.in = from;
  op.out = to;
  if (!routing_.from_matrix) {
    const View sent = whole(counts_), received = whole(received_counts_);
    op.run_time = CountsRef{.send = to_experts ? sent : received,
                            .recv = to_experts ? received : sent,
                            .per_peer = share_.experts,
                            .row_elements = hidden_};
    return op;
  }
  const auto me = static_cast<std::size_t>(share_.rank);
  std::vector<Index> row, column;
  for (std::size_t peer = 0; peer < routing_.matrix.size(); ++peer) {
    row.push_back(routing_.matrix[me][peer] * hidden_);
    column.push_back(routing_.matrix[peer][me] * hidden_);
  }
  op.in.rows = to_experts ? share_.sent : share_.received;
  op.out.rows = to_experts ? share_.received : share_.sent;
  op.counts = to_experts ? row : column;
  op.recv_counts = to_experts ? column : row;
  return op;
}

ExpertLayer::After ExpertLayer::exchange(StepList& steps, std::string label, TensorId from,
                                         TensorId to, bool to_experts, StepId ready) {
  if (!group_) return {};
  return {{steps.communicate(std::move(label), exchange_op(whole(from), whole(to), to_experts),
                             ready < 0 ? After{} : After{{ready, 0}}),
           0}};
}

void ExpertLayer::experts_forward(StepList& steps, After arrived) {
  for (std::size_t i = 0; i < w1_.size(); ++i) {
    steps.compute("Z = rows " + first_[i],
                  grouped(ComputeKind::grouped_gemm, whole(received_), whole(w1_[i]), whole(z_[i])),
                  arrived);
  }
  steps.compute("H = act(Z)", activate(act_, whole(z_), whole(h_)));
}

void ExpertLayer::forward(StepList& steps, bool check) {
  y_ = program_.add(of_tokens(checked(activation("Y", options_.dtype, share_.tokens, hidden_),
                                      check && share_.tokens > 0)));
  StepId counted = -1, permuted = -1;
  if (share_.tokens > 0) {
    route(steps);
    Compute count = compute_op(ComputeKind::count_tokens, {whole(indices_)}, {whole(counts_)});
    count.experts = routing_.experts;
    counted = steps.compute("rows per expert", std::move(count));
  }
  exchange_counts(steps, counted);
  if (share_.tokens > 0) {
    Compute permute =
        compute_op(ComputeKind::permute, {whole(x_), whole(indices_)}, {whole(sent_)});
    permute.experts = routing_.experts;
    permuted = steps.compute("permute by expert", std::move(permute));
  }
  experts_forward(steps, exchange(steps, "AllToAllV dispatch", sent_, received_, true, permuted));
  const StepId computed = steps.compute(
      "results = H W2", grouped(ComputeKind::grouped_gemm, whole(h_), whole(w2_), whole(results_)));
  After back = exchange(steps, "AllToAllV combine", results_, returned_, false, computed);
  if (share_.tokens == 0) return;
  Compute sum = compute_op(ComputeKind::unpermute,
                           {whole(returned_), whole(indices_), whole(gate_)}, {whole(y_)});
  sum.experts = routing_.experts;
  steps.compute("Y = weighted sum", std::move(sum), std::move(back));
}

}  // namespace weft
