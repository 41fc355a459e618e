#include "patterns/pipeline_stage.hpp"

#include <utility>

namespace weft {

namespace {

/// A gated activation needs two matrices; the square layers of this pattern have one, and use gelu
/// in its place.
Activation act_of(const ModelShape& model) {
  return model.act == Activation::swiglu ? Activation::gelu : model.act;
}

}  // namespace

PipelineStage::PipelineStage(Program& program, const ModelShape& model,
                             const PatternOptions& options, const StageShape& shape)
    : program_(program), shape_(shape), act_(act_of(model)) {
  const DType dtype = options.dtype;
  const Index h = shape.hidden, rows = shape.rows.size;
  const auto whole_run = [&](Tensor tensor) {
    return program_.add(
        at_rows(in_slots(std::move(tensor), shape.micro_batches), shape.tokens, shape.rows.begin));
  };
  const auto per_layer = [&](Tensor tensor) {
    return program_.add(in_slots(std::move(tensor), shape.layers, shape.first_layer));
  };
  const auto kept = [&](std::string name, int slots) {
    return program_.add(in_slots(activation(std::move(name), dtype, rows, h), slots));
  };
  if (shape.first) {
    x_ = whole_run(generated("X", dtype, rows, h));
    dx_ = whole_run(checked(activation("dX", dtype, rows, h)));
  }
  if (shape.last) {
    y_ = whole_run(checked(activation("Y", dtype, rows, h)));
    dy_ = whole_run(generated("dY", dtype, rows, h));
  }
  const int boundaries = shape.layers + 1;
  activation_ = kept("layer inputs", shape.in_flight * boundaries);
  linear_ = kept("Z", shape.in_flight * shape.layers);
  gradient_ = kept("layer gradients", shape.gradients_kept * boundaries);
  dz_ = kept("dZ", shape.gradients_kept > 1 ? shape.gradients_kept * shape.layers : 1);
  const bool whole = shape.weight_sums_complete;
  w_ = per_layer(weight("W", dtype, h, h, h));
  dw_ = per_layer(checked(gradient(whole ? "dW" : "dW_part", dtype, h, h), whole));
  if (!options.bias) return;
  b_ = per_layer(weight("b", dtype, 1, h, h));
  db_ = per_layer(checked(gradient(whole ? "db" : "db_part", dtype, 1, h), whole));
  Tensor ones = activation("ones", dtype, rows, 1);
  ones.fill = Fill::constant;
  ones_ = program_.add(std::move(ones));
}

/// Slot (first + i)*stride + offset + per_layer*j, modulo what the tensor has.
View PipelineStage::slot_of(TensorId id, int first, int stride, int offset, int per_layer) const {
  const int slots = program_.tensors[static_cast<std::size_t>(id)].slots;
  return in_slot(program_.whole(id), (first % slots * stride + offset) % slots,
                 {stride, per_layer});
}

/// Boundary 0 is the input of layer 0, boundary l the output of layer l-1.
View PipelineStage::activation_of(int first, int boundary, int per_layer) const {
  return slot_of(activation_, first, shape_.layers + 1, boundary, per_layer);
}
View PipelineStage::gradient_of(int first, int boundary, int per_layer) const {
  return slot_of(gradient_, first, shape_.layers + 1, boundary, per_layer);
}
View PipelineStage::linear_of(TensorId id, int first, Walk walk) const {
  return slot_of(id, first, shape_.layers, walk.first_layer, walk.per_layer);
}
View PipelineStage::of_layer(TensorId id, Walk walk) const {
  return slot_of(id, 0, 0, walk.first_layer, walk.per_layer);
}
View PipelineStage::of_micro_batch(TensorId id, int first) const {
  return slot_of(id, first, 1, 0, 0);
}

View PipelineStage::input(int first) const { return activation_of(first, 0, 0); }
View PipelineStage::output(int first) const { return activation_of(first, shape_.layers, 0); }
View PipelineStage::output_gradient(int first) const {
  return gradient_of(first, shape_.layers, 0);
}
View PipelineStage::input_gradient(int first) const { return gradient_of(first, 0, 0); }

std::vector<Step> PipelineStage::forward_layer(int first) const {
  std::vector<Step> body;
  StepList steps(body, Direction::forward, Dimension::pp);
  const Walk up{.first_layer = 0, .per_layer = 1};
  const View z = linear_of(linear_, first, up);
  steps.compute("Z = X W", gemm(activation_of(first, 0, 1), of_layer(w_, up), z));
  if (b_ >= 0) {
    steps.compute("Z = Z + b", compute_op(ComputeKind::bias, {z, of_layer(b_, up)}, {z}));
  }
  steps.compute("Y = act(Z)", activate(act_, {z}, activation_of(first, 1, 1)));
  return body;
}

StepId PipelineStage::forward(StepList& steps, int first, StepList::After ready) const {
  steps.turn(Direction::forward);
  if (shape_.first) {
    steps.compute("load X",
                  compute_op(ComputeKind::copy, {of_micro_batch(x_, first)}, {input(first)}));
  }
  StepId last =
      steps.repeat("forward layers", shape_.layers, forward_layer(first), std::move(ready));
  if (shape_.last) {
    last = steps.compute(
        "store Y", compute_op(ComputeKind::copy, {output(first)}, {of_micro_batch(y_, first)}));
  }
  return last;
}

std::vector<Step> PipelineStage::backward_layer(int first, bool accumulate) const {
  std::vector<Step> body;
  StepList steps(body, Direction::backward, Dimension::pp);
  const int top = shape_.layers - 1;
  const Walk down{.first_layer = top, .per_layer = -1};
  const View dz = linear_of(dz_, first, down);
  steps.compute("dZ = dY * act'(Z)", activate_grad(act_, gradient_of(first, top + 1, -1),
                                                   {linear_of(linear_, first, down)}, {dz}));
  steps.compute("dX = dZ W^T",
                gemm(dz, of_layer(w_, down), gradient_of(first, top, -1), {.trans_b = true}));
  const GemmForm sum{.trans_a = true, .accumulate = accumulate};
  const std::string sign = accumulate ? "+=" : "=";
  steps.compute("dW " + sign + " X^T dZ",
                gemm(activation_of(first, top, -1), dz, of_layer(dw_, down), sum));
  if (b_ >= 0) {
    steps.compute("db " + sign + " 1^T dZ",
                  gemm(program_.whole(ones_), dz, of_layer(db_, down), sum));
  }
  return body;
}

StepId PipelineStage::backward(StepList& steps, int first, bool accumulate,
                               StepList::After ready) const {
  steps.turn(Direction::backward);
  if (shape_.last) {
    steps.compute(
        "load dY",
        compute_op(ComputeKind::copy, {of_micro_batch(dy_, first)}, {output_gradient(first)}),
        ready);
  }
  StepId last = steps.repeat("backward layers", shape_.layers, backward_layer(first, accumulate),
                             std::move(ready));
  if (shape_.first) {
    last = steps.compute("store dX", compute_op(ComputeKind::copy, {input_gradient(first)},
                                                {of_micro_batch(dx_, first)}));
  }
  return last;
}

}  // namespace weft
