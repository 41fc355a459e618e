// Column-parallel linear layer. A = [A1 | .. | At] by columns, rank i computes Yi = act(X Ai + bi),
// [T x h] [h x f/t].
//   forward           AllGather of Y over tp, M = T*f*e, then a re-layout of the rank-major blocks
//   to [T x f] backward          dZi = dYi * act'(Zi); dX = sum of dZi Ai^T by AllReduce, M =
//   T*h*e, while dAi = X^T dZi is computed sequence parallel X is gathered along the sequence first
//   and Y stays split; backward gathers X again (unless it was
//                     kept) and ReduceScatters dX, each M = T*h*e
// Gated networks have two matrices, A_gate and A_up.
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/registry.hpp"

namespace weft {

namespace {

/// Names of the matrices of a layer and of what they give: one, or two in a gated network.
std::vector<std::string> branches(const ModelShape& model) {
  if (model.act == Activation::swiglu) return {"_gate", "_up"};
  return {""};
}

class ColumnLinear {
 public:
  ColumnLinear(const ModelShape& model, const Layout& layout, const PatternOptions& options,
               Rank rank);
  Program forward();
  Program backward();

 private:
  void add_operands();
  View whole(TensorId id) const { return program_.whole(id); }
  std::vector<View> whole(const std::vector<TensorId>& ids) const;
  StepId gather_input(StepList& steps, std::string label);
  void linear(StepList& steps, StepList::After after);
  void gather_output(StepList& steps, StepId ready);
  void add_gradients();
  StepId input_gradient(StepList& steps);
  void weight_gradients(StepList& steps, StepList::After after);

  const PatternOptions& options_;
  std::vector<std::string> branches_;
  Index tokens_, hidden_, ffn_;
  int ways_, index_;
  Part columns_;
  std::vector<Index> widths_;           // columns of every member
  std::vector<Index> sequence_shards_;  // elements of X of every member, with sequence parallelism
  Activation act_;
  bool bias_;
  Program program_;
  GroupId tp_ = 0;
  TensorId x_ = -1, x_all_ = -1, b_ = -1, y_ = -1, dy_ = -1, dx_part_ = -1, dx_ = -1, db_ = -1;
  std::vector<TensorId> a_, z_, da_, dz_;
};

ColumnLinear::ColumnLinear(const ModelShape& model, const Layout& layout,
                           const PatternOptions& options, Rank rank)
    : options_(options),
      branches_(branches(model)),
      tokens_(tokens_of(model, options)),
      hidden_(model.hidden),
      ffn_(model.ffn),
      ways_(layout.size(Dimension::tp)),
      index_(layout.coordinates(rank).tp),
      act_(model.act),
      bias_(has_bias(model, options)) {
  require_one_way("tp-allgather", options.direction);
  if (ffn_ < ways_) {
    fail_usage(
        fmt::format("{} columns (ffn of {}) cannot be split over tp {}; choose --tp {} or less",
                    ffn_, model.name, ways_, ffn_));
  }
  columns_ = part_of(ffn_, ways_, index_);
  widths_ = part_sizes(ffn_, ways_);
  tp_ = program_.add(layout.group(Dimension::tp, rank));
  if (options.sequence_parallel) {
    const Index shard = divide_exactly(tokens_, ways_, "tokens", "tp");
    sequence_shards_.assign(static_cast<std::size_t>(ways_), shard * hidden_);
  }
  add_operands();
}

/// X [T x h] (whole, or this rank's rows), A [h x f/t], b [1 x f/t], Z [T x f/t].
void ColumnLinear::add_operands() {
  const DType dtype = options_.dtype;
  if (options_.sequence_parallel) {
    const Index shard = tokens_ / ways_;
    x_ = program_.add(at_rows(generated("X", dtype, shard, hidden_), tokens_, shard * index_));
    x_all_ = program_.add(activation("X_gathered", dtype, tokens_, hidden_));
  } else {
    x_ = x_all_ = program_.add(generated("X", dtype, tokens_, hidden_));
  }
  for (const std::string& branch : branches_) {
    a_.push_back(program_.add(at_cols(weight("A" + branch, dtype, hidden_, columns_.size, hidden_),
                                      ffn_, columns_.begin)));
    z_.push_back(program_.add(
        at_cols(activation("Z" + branch, dtype, tokens_, columns_.size), ffn_, columns_.begin)));
  }
  if (bias_) {
    b_ = program_.add(at_cols(weight("b", dtype, 1, columns_.size, hidden_), ffn_, columns_.begin));
  }
}

std::vector<View> ColumnLinear::whole(const std::vector<TensorId>& ids) const {
  std::vector<View> views;
  for (TensorId id : ids) views.push_back(whole(id));
  return views;
}

StepId ColumnLinear::gather_input(StepList& steps, std::string label) {
  return steps.communicate(std::move(label),
                           all_gather(tp_, whole(x_), whole(x_all_), sequence_shards_));
}

/// Z = X A + b, for every matrix of the layer.
void ColumnLinear::linear(StepList& steps, StepList::After after) {
  for (std::size_t i = 0; i < a_.size(); ++i) {
    steps.compute(fmt::format("Z{0} = X A{0}", branches_[i]),
                  gemm(whole(x_all_), whole(a_[i]), whole(z_[i])), after);
    if (bias_) {
      steps.compute("Z = Z + b",
                    compute_op(ComputeKind::bias, {whole(z_[i]), whole(b_)}, {whole(z_[i])}));
    }
  }
}

/// Rank-major blocks [t][T][f/t] arrive; a compute step makes rows of f of them.
void ColumnLinear::gather_output(StepList& steps, StepId ready) {
  const DType dtype = options_.dtype;
  const TensorId blocks = program_.add(activation("Y_blocks", dtype, 1, tokens_ * ffn_));
  const TensorId all = program_.add(checked(activation("Y", dtype, tokens_, ffn_)));
  std::vector<Index> counts;
  for (Index width : widths_) counts.push_back(tokens_ * width);
  const StepId gathered = steps.communicate(
      "AllGather Y", all_gather(tp_, whole(y_), whole(blocks), std::move(counts)), {{ready}});
  Compute relayout = compute_op(ComputeKind::relayout, {whole(blocks)}, {whole(all)});
  relayout.counts = widths_;
  steps.compute("Y = rows of the gathered blocks", std::move(relayout), {{gathered}});
}

Program ColumnLinear::forward() {
  StepList steps(program_.steps, Direction::forward, Dimension::tp);
  StepList::After input;
  if (options_.sequence_parallel) input = {{gather_input(steps, "AllGather X")}};
  linear(steps, std::move(input));
  const std::string name = options_.sequence_parallel ? "Y" : "Y_part";
  y_ = program_.add(checked(
      at_cols(activation(name, options_.dtype, tokens_, columns_.size), ffn_, columns_.begin),
      options_.sequence_parallel));
  const StepId ready = steps.compute(name + " = act(Z)", activate(act_, whole(z_), whole(y_)));
  if (!options_.sequence_parallel) gather_output(steps, ready);
  return std::move(program_);
}

/// dY whole where Y was gathered (replicated), this rank's columns where it stayed split.
void ColumnLinear::add_gradients() {
  const DType dtype = options_.dtype;
  const Index shard = options_.sequence_parallel ? tokens_ / ways_ : tokens_;
  const Index first = options_.sequence_parallel ? shard * index_ : 0;
  dy_ = program_.add(
      options_.sequence_parallel
          ? at_cols(generated("dY", dtype, tokens_, columns_.size), ffn_, columns_.begin)
          : generated("dY", dtype, tokens_, ffn_));
  for (const std::string& branch : branches_) {
    dz_.push_back(program_.add(activation("dZ" + branch, dtype, tokens_, columns_.size)));
    da_.push_back(program_.add(checked(
        at_cols(gradient("dA" + branch, dtype, hidden_, columns_.size), ffn_, columns_.begin))));
  }
  dx_part_ = program_.add(activation("dX_part", dtype, tokens_, hidden_));
  dx_ = program_.add(checked(at_rows(activation("dX", dtype, shard, hidden_), tokens_, first)));
  if (bias_) {
    db_ = program_.add(
        checked(at_cols(gradient("db", dtype, 1, columns_.size), ffn_, columns_.begin)));
  }
}

/// dX_part = sum over the matrices of dZ A^T: this rank's share of the sum over tp.
StepId ColumnLinear::input_gradient(StepList& steps) {
  const View slice = options_.sequence_parallel
                         ? whole(dy_)
                         : columns_of(program_, dy_, columns_.begin, columns_.size);
  steps.compute("dZ = dY * act'(Z)", activate_grad(act_, slice, whole(z_), whole(dz_)));
  StepId last = -1;
  for (std::size_t i = 0; i < a_.size(); ++i) {
    last = steps.compute(
        fmt::format("dX_part {}= dZ{} A{}^T", i == 0 ? "" : "+", branches_[i], branches_[i]),
        gemm(whole(dz_[i]), whole(a_[i]), whole(dx_part_), {.trans_b = true, .accumulate = i > 0}));
  }
  return last;
}

void ColumnLinear::weight_gradients(StepList& steps, StepList::After after) {
  for (std::size_t i = 0; i < a_.size(); ++i) {
    steps.compute(fmt::format("dA{0} = X^T dZ{0}", branches_[i]),
                  gemm(whole(x_all_), whole(dz_[i]), whole(da_[i]), {.trans_a = true}), after);
  }
  if (bias_) {
    steps.compute("db = column sums of dZ",
                  compute_op(ComputeKind::column_sum, {whole(dz_[0])}, {whole(db_)}));
  }
}

Program ColumnLinear::backward() {
  add_gradients();
  StepList before(program_.prologue, Direction::forward, Dimension::tp);
  StepList steps(program_.steps, Direction::backward, Dimension::tp);
  StepList::After stored, gathered;
  if (options_.sequence_parallel) {
    stored = {{gather_input(before, "AllGather X (forward)")}};
    if (!options_.keep_gathered) gathered = {{gather_input(steps, "AllGather X again")}};
  }
  linear(before, std::move(stored));
  const StepId part = input_gradient(steps);
  if (options_.sequence_parallel) {
    steps.communicate("ReduceScatter dX",
                      reduce_scatter(tp_, whole(dx_part_), whole(dx_), sequence_shards_), {{part}});
  } else {
    steps.communicate("AllReduce dX", all_reduce(tp_, whole(dx_part_), whole(dx_)), {{part}});
  }
  weight_gradients(steps, std::move(gathered));
  return std::move(program_);
}

Program make(const ModelShape& model, const Layout& layout, const PatternOptions& options,
             Rank rank) {
  ColumnLinear layer(model, layout, options, rank);
  return options.direction == Direction::forward ? layer.forward() : layer.backward();
}

/// The whole layer on one rank: operands and Z, for both directions.
struct WholeLayer {
  Program program;
  TensorId x = -1;
  std::vector<TensorId> a, z;

  std::vector<View> views(const std::vector<TensorId>& ids) const {
    std::vector<View> all;
    for (TensorId id : ids) all.push_back(program.whole(id));
    return all;
  }
};

WholeLayer whole_layer(const ModelShape& model, const PatternOptions& options,
                       std::vector<Step> Program::*where) {
  WholeLayer layer;
  Program& p = layer.program;
  const DType dtype = options.dtype;
  const Index tokens = tokens_of(model, options), h = model.hidden, f = model.ffn;
  StepList steps(p.*where, Direction::forward, Dimension::tp);
  layer.x = p.add(generated("X", dtype, tokens, h));
  for (const std::string& branch : branches(model)) {
    layer.a.push_back(p.add(weight("A" + branch, dtype, h, f, h)));
    layer.z.push_back(p.add(activation("Z" + branch, dtype, tokens, f)));
    const View z = p.whole(layer.z.back()), x = p.whole(layer.x), a = p.whole(layer.a.back());
    if (!has_bias(model, options)) {
      steps.compute("Z = X A", gemm(x, a, z));
      continue;
    }
    const View xa = p.whole(p.add(activation("XA", dtype, tokens, f)));
    const View b = p.whole(p.add(weight("b", dtype, 1, f, h)));
    steps.compute("XA = X A", gemm(x, a, xa));
    steps.compute("Z = XA + b", compute_op(ComputeKind::bias, {xa, b}, {z}));
  }
  return layer;
}

Program reference_forward(const ModelShape& model, const PatternOptions& options) {
  WholeLayer layer = whole_layer(model, options, &Program::steps);
  Program& p = layer.program;
  const TensorId y =
      p.add(checked(activation("Y", options.dtype, tokens_of(model, options), model.ffn)));
  StepList steps(p.steps, Direction::forward, Dimension::tp);
  steps.compute("Y = act(Z)", activate(model.act, layer.views(layer.z), p.whole(y)));
  return std::move(p);
}

Program reference_backward(const ModelShape& model, const Layout& layout,
                           const PatternOptions& options) {
  WholeLayer layer = whole_layer(model, options, &Program::prologue);
  Program& p = layer.program;
  const DType dtype = options.dtype;
  const Index tokens = tokens_of(model, options), h = model.hidden, f = model.ffn;
  const std::vector<std::string> names = branches(model);
  const View dy = p.whole(p.add(generated("dY", dtype, tokens, f)));
  const View dx = p.whole(p.add(checked(activation("dX", dtype, tokens, h))));
  std::vector<View> dz;
  for (const std::string& name : names) {
    dz.push_back(p.whole(p.add(activation("dZ" + name, dtype, tokens, f))));
  }
  StepList steps(p.steps, Direction::backward, Dimension::tp);
  steps.compute("dZ = dY * act'(Z)", activate_grad(model.act, dy, layer.views(layer.z), dz));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const View a = p.whole(layer.a[i]);
    steps.compute("dX += dZ A^T",
                  gemm(dz[i], a, dx,
                       {.trans_b = true, .accumulate = i > 0, .ways = layout.size(Dimension::tp)}));
    const View da = p.whole(p.add(checked(gradient("dA" + names[i], dtype, h, f))));
    steps.compute("dA = X^T dZ", gemm(p.whole(layer.x), dz[i], da, {.trans_a = true}));
  }
  if (has_bias(model, options)) {
    const View db = p.whole(p.add(checked(gradient("db", dtype, 1, f))));
    steps.compute("db = column sums of dZ", compute_op(ComputeKind::column_sum, {dz[0]}, {db}));
  }
  return std::move(p);
}

Program make_reference(const ModelShape& model, const Layout& layout,
                       const PatternOptions& options) {
  require_one_way("tp-allgather", options.direction);
  return options.direction == Direction::forward ? reference_forward(model, options)
                                                 : reference_backward(model, layout, options);
}

std::vector<std::string> option_texts(const PatternOptions& options) {
  return {fmt::format("bias={}", options.bias),
          fmt::format("sequence_parallel={}", options.sequence_parallel),
          fmt::format("keep_gathered={}", options.sequence_parallel && options.keep_gathered)};
}

}  // namespace

const Pattern& tp_allgather_pattern() {
  static const Pattern pattern{
      .name = "tp-allgather",
      .summary = "column-parallel linear layer: AllGather of its output, AllReduce of dX",
      .dim = Dimension::tp,
      .directions = {Direction::forward, Direction::backward},
      .sweep = {CollectiveKind::all_gather},
      .default_model = "tiny",
      .make = make,
      .make_reference = make_reference,
      .option_texts = option_texts};
  return pattern;
}

}  // namespace weft
