#include "patterns/builder.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "patterns/error.hpp"

namespace weft {

Index tokens_of(const ModelShape& model, const PatternOptions& options) {
  const Index seq = options.seq > 0 ? options.seq : model.seq;
  if (options.seq < 0 || seq < 1 || options.micro_batch < 1) {
    fail_usage(fmt::format(
        "sequence {} of micro-batch {} has no tokens; choose --seq and --micro-batch of 1 or more",
        options.seq < 0 ? options.seq : seq, options.micro_batch));
  }
  return seq * options.micro_batch;
}

int layers_of(const ModelShape& model, const PatternOptions& options) {
  const int layers = options.layers != 0 ? options.layers : model.layers;
  if (layers < 1) fail_usage(fmt::format("{} layers; choose --layers of 1 or more", layers));
  return layers;
}

bool has_bias(const ModelShape& model, const PatternOptions& options) {
  return options.bias && model.act != Activation::swiglu;
}

void require_one_way(std::string_view pattern, Direction direction) {
  if (direction == Direction::both) {
    fail_usage(
        fmt::format("{} has no program for both directions; choose forward or backward", pattern));
  }
}

Tensor activation(std::string name, DType dtype, Index rows, Index cols) {
  Tensor tensor = gradient(std::move(name), dtype, rows, cols);
  tensor.persistent = false;
  return tensor;
}

Tensor generated(std::string name, DType dtype, Index rows, Index cols) {
  Tensor tensor = activation(std::move(name), dtype, rows, cols);
  tensor.fill = Fill::uniform;
  return tensor;
}

Tensor weight(std::string name, DType dtype, Index rows, Index cols, Index fan_in) {
  Tensor tensor = gradient(std::move(name), dtype, rows, cols);
  tensor.fill = Fill::uniform;
  tensor.scale = std::sqrt(6.0 / static_cast<double>(fan_in));
  return tensor;
}

Tensor gradient(std::string name, DType dtype, Index rows, Index cols) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.rows = tensor.global_rows = rows;
  tensor.cols = tensor.global_cols = cols;
  return tensor;
}

Tensor at_rows(Tensor tensor, Index global_rows, Index offset) {
  tensor.global_rows = global_rows;
  tensor.row_offset = offset;
  return tensor;
}

Tensor at_cols(Tensor tensor, Index global_cols, Index offset) {
  tensor.global_cols = global_cols;
  tensor.col_offset = offset;
  return tensor;
}

Tensor in_slots(Tensor tensor, int slots, int offset) {
  tensor.slots = slots;
  tensor.slot_offset = offset;
  return tensor;
}

Tensor checked(Tensor tensor, bool check) {
  tensor.check = check;
  return tensor;
}

View in_slot(View view, int first, std::array<int, 2> per) {
  view.slot = first;
  view.slot_per = per;
  return view;
}

View columns_of(const Program& program, TensorId id, Index first, Index count) {
  View view = program.whole(id);
  view.offset = first;
  view.cols = count;
  return view;
}

View flat_block(TensorId id, Index offset, Index rows, Index cols) {
  return {.tensor = id, .offset = offset, .rows = rows, .cols = cols, .ld = cols};
}

Compute gemm(View a, View b, View c, GemmForm form) {
  Compute op = compute_op(ComputeKind::gemm, {a, b}, {c});
  op.trans_a = form.trans_a;
  op.trans_b = form.trans_b;
  op.accumulate = form.accumulate;
  op.ways = form.ways;
  return op;
}

Compute compute_op(ComputeKind kind, std::vector<View> in, std::vector<View> out) {
  Compute op;
  op.kind = kind;
  op.in = std::move(in);
  op.out = std::move(out);
  return op;
}

Compute activate(Activation act, std::vector<View> z, View y) {
  Compute op = compute_op(ComputeKind::activation, std::move(z), {y});
  op.act = act;
  return op;
}

Compute activate_grad(Activation act, View dy, const std::vector<View>& z, std::vector<View> dz) {
  std::vector<View> in{dy};
  in.insert(in.end(), z.begin(), z.end());
  Compute op = compute_op(ComputeKind::activation_grad, std::move(in), std::move(dz));
  op.act = act;
  return op;
}

namespace {

Collective collective(CollectiveKind kind, GroupId group, View in, View out,
                      std::vector<Index> counts) {
  Collective op;
  op.kind = kind;
  op.group = group;
  op.in = in;
  op.out = out;
  op.counts = std::move(counts);
  return op;
}

}  // namespace

Collective all_gather(GroupId group, View in, View out, std::vector<Index> counts) {
  return collective(CollectiveKind::all_gather, group, in, out, std::move(counts));
}

Collective reduce_scatter(GroupId group, View in, View out, std::vector<Index> counts) {
  return collective(CollectiveKind::reduce_scatter, group, in, out, std::move(counts));
}

Collective all_reduce(GroupId group, View in, View out) {
  return collective(CollectiveKind::all_reduce, group, in, out, {});
}

StepId StepList::append(Step step) {
  step.direction = direction_;
  steps_->push_back(std::move(step));
  return static_cast<StepId>(steps_->size()) - 1;
}

StepId StepList::compute(std::string label, Compute op, After after) {
  Step step;
  step.op = std::move(op);
  step.label = std::move(label);
  step.after = std::move(after);
  return append(std::move(step));
}

StepId StepList::communicate(std::string label, Op op, After after) {
  Step step;
  step.op = std::move(op);
  step.stream = StreamRole::comm;
  step.label = std::move(label);
  step.after = std::move(after);
  step.dim = dim_;
  return append(std::move(step));
}

StepId StepList::repeat(std::string label, int count, std::vector<Step> body, After after) {
  Step step;
  Repeat repeat;
  repeat.count = count;
  repeat.body = std::move(body);
  step.op = std::move(repeat);
  step.label = std::move(label);
  step.after = std::move(after);
  return append(std::move(step));
}

}  // namespace weft
