#include "patterns/backward_layers.hpp"

#include <fmt/format.h>

namespace weft {

BackwardLayers::BackwardLayers(Program& program, const GradientPlan& plan, const ModelShape& model,
                               const PatternOptions& options, Rows rows)
    : program_(program),
      plan_(plan),
      act_(model.act),
      ways_(rows.ways),
      bias_(has_bias(model, options)),
      first_(model.act == Activation::swiglu ? std::vector<std::string>{"W_gate", "W_up"}
                                             : std::vector<std::string>{"W1"}) {
  const DType dtype = options.dtype;
  const auto stored = [&](Tensor tensor, int slots) {
    return program_.add(at_rows(in_slots(std::move(tensor), slots), rows.all, rows.first));
  };
  parameters_ = program_.add(weight("parameters", dtype, 1, plan.elements, plan.hidden));
  Tensor gradients = gradient("gradients", options.grad_dtype, 1, plan.elements);
  gradients.fill = Fill::zero;  // the padding of buckets is summed too
  gradients_ = program_.add(std::move(gradients));
  x_ = stored(generated("X", dtype, rows.count, plan.hidden), plan.layers);
  h_ = stored(activation("H", dtype, rows.count, plan.ffn), plan.layers);
  dy_ = stored(generated("dY", dtype, rows.count, plan.hidden), plan.layers);
  dx_ = stored(checked(activation("dX", dtype, rows.count, plan.hidden)), plan.layers);
  dh_ = stored(activation("dH", dtype, rows.count, plan.ffn), rows.scratch_slots);
  for (const std::string& name : first_) {
    z_.push_back(stored(activation("Z_" + name, dtype, rows.count, plan.ffn), plan.layers));
    dz_.push_back(
        stored(activation("dZ_" + name, dtype, rows.count, plan.ffn), rows.scratch_slots));
  }
}

View BackwardLayers::at(TensorId id, int layer) const {
  const int slots = program_.tensors[static_cast<std::size_t>(id)].slots;
  return in_slot(program_.whole(id), layer % slots);
}

std::vector<View> BackwardLayers::at(const std::vector<TensorId>& ids, int layer) const {
  std::vector<View> views;
  for (TensorId id : ids) views.push_back(at(id, layer));
  return views;
}

View BackwardLayers::block(TensorId buffer, const std::string& name, int layer) const {
  const Parameter& p = plan_.parameters[plan_.find(name, layer)];
  return flat_block(buffer, p.offset, p.rows, p.cols);
}

void BackwardLayers::forward(StepList& steps) const {
  for (int layer = 0; layer < plan_.layers; ++layer) {
    for (std::size_t i = 0; i < first_.size(); ++i) {
      const View z = at(z_[i], layer);
      steps.compute(fmt::format("Z = X {} of layer {}", first_[i], layer),
                    gemm(at(x_, layer), block(parameters_, first_[i], layer), z));
      if (!bias_) continue;
      steps.compute("Z = Z + b1",
                    compute_op(ComputeKind::bias, {z, block(parameters_, "b1", layer)}, {z}));
    }
    steps.compute("H = act(Z)", activate(act_, at(z_, layer), at(h_, layer)));
  }
}

void BackwardLayers::weight_gradient(StepList& steps, View input, View d, const std::string& name,
                                     int layer, const Ready& ready) const {
  ready(plan_.find(name, layer), steps.compute(fmt::format("d{} of layer {}", name, layer),
                                               gemm(input, d, block(gradients_, name, layer),
                                                    {.trans_a = true, .ways = ways_})));
}

void BackwardLayers::bias_gradient(StepList& steps, View d, const std::string& name, int layer,
                                   const Ready& ready) const {
  if (!bias_) return;
  Compute sum = compute_op(ComputeKind::column_sum, {d}, {block(gradients_, name, layer)});
  sum.ways = ways_;
  ready(plan_.find(name, layer),
        steps.compute(fmt::format("d{} of layer {}", name, layer), std::move(sum)));
}

void BackwardLayers::input_gradient(StepList& steps, int layer) const {
  for (std::size_t i = 0; i < first_.size(); ++i) {
    steps.compute(fmt::format("dX of layer {}", layer),
                  gemm(at(dz_[i], layer), block(parameters_, first_[i], layer), at(dx_, layer),
                       {.trans_b = true, .accumulate = i > 0}));
  }
}

void BackwardLayers::backward_layer(StepList& steps, int layer, const Ready& ready) const {
  const View dy = at(dy_, layer), dh = at(dh_, layer);
  const std::vector<View> dz = at(dz_, layer);
  bias_gradient(steps, dy, "b2", layer, ready);
  weight_gradient(steps, at(h_, layer), dy, "W2", layer, ready);
  steps.compute(fmt::format("dH of layer {}", layer),
                gemm(dy, block(parameters_, "W2", layer), dh, {.trans_b = true}));
  steps.compute("dZ = dH * act'(Z)", activate_grad(act_, dh, at(z_, layer), dz));
  bias_gradient(steps, dz[0], "b1", layer, ready);
  for (std::size_t i = first_.size(); i-- > 0;) {
    weight_gradient(steps, at(x_, layer), dz[i], first_[i], layer, ready);
  }
  input_gradient(steps, layer);
}

void BackwardLayers::backward(StepList& steps, const Ready& ready) const {
  for (int layer = plan_.layers; layer-- > 0;) backward_layer(steps, layer, ready);
}

}  // namespace weft
