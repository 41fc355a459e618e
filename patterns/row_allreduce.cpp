// Row-parallel linear layer. A = [A1; ..; At] by rows, rank i holds Xi [T x f/t] and computes Yi =
// Xi Ai, [T x f/t] [f/t x h].
//   forward           AllReduce of Y over tp, M = T*h*e; the bias is added once, after the sum
//   backward          dXi = dY Ai^T, dAi = Xi^T dY: nothing is sent, dY is replicated
//   sequence parallel ReduceScatter of Y along the sequence; backward AllGathers dY, each M =
//   T*h*e: together the bytes of
//                     one AllReduce
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/registry.hpp"

namespace weft {

namespace {

class RowLinear {
 public:
  RowLinear(const ModelShape& model, const Layout& layout, const PatternOptions& options,
            Rank rank);
  Program forward();
  Program backward();

 private:
  View whole(TensorId id) const { return program_.whole(id); }
  /// [T x h], or this rank's rows of it with sequence parallelism.
  Tensor along_sequence(Tensor tensor) const;
  void add_bias(StepList& steps, StepId summed);
  View output_gradient(StepList& steps, StepList::After& ready);

  const PatternOptions& options_;
  Index tokens_, hidden_, ffn_;
  int ways_, index_;
  Part rows_;
  Index shard_;  // tokens of this rank outside the layer
  std::vector<Index> sequence_shards_;
  bool bias_;
  Program program_;
  GroupId tp_ = 0;
  TensorId x_ = -1, a_ = -1, y_ = -1;
};

RowLinear::RowLinear(const ModelShape& model, const Layout& layout, const PatternOptions& options,
                     Rank rank)
    : options_(options),
      tokens_(tokens_of(model, options)),
      hidden_(model.hidden),
      ffn_(model.ffn),
      ways_(layout.size(Dimension::tp)),
      index_(layout.coordinates(rank).tp),
      shard_(tokens_),
      bias_(has_bias(model, options)) {
  require_one_way("row-allreduce", options.direction);
  if (ffn_ < ways_) {
    fail_usage(fmt::format("{} rows (ffn of {}) cannot be split over tp {}; choose --tp {} or less",
                           ffn_, model.name, ways_, ffn_));
  }
  rows_ = part_of(ffn_, ways_, index_);
  if (options.sequence_parallel) {
    shard_ = divide_exactly(tokens_, ways_, "tokens", "tp");
    sequence_shards_.assign(static_cast<std::size_t>(ways_), shard_ * hidden_);
  }
  tp_ = program_.add(layout.group(Dimension::tp, rank));
  x_ = program_.add(at_cols(generated("X", options.dtype, tokens_, rows_.size), ffn_, rows_.begin));
  a_ = program_.add(
      at_rows(weight("A", options.dtype, rows_.size, hidden_, ffn_), ffn_, rows_.begin));
}

Tensor RowLinear::along_sequence(Tensor tensor) const {
  const Index first = options_.sequence_parallel ? shard_ * index_ : 0;
  return at_rows(std::move(tensor), tokens_, first);
}

void RowLinear::add_bias(StepList& steps, StepId summed) {
  if (!bias_) return;
  const View b = whole(program_.add(weight("b", options_.dtype, 1, hidden_, ffn_)));
  steps.compute("Y = Y + b", compute_op(ComputeKind::bias, {whole(y_), b}, {whole(y_)}),
                {{summed}});
}

Program RowLinear::forward() {
  const View part = whole(program_.add(activation("Y_part", options_.dtype, tokens_, hidden_)));
  y_ = program_.add(checked(along_sequence(activation("Y", options_.dtype, shard_, hidden_))));
  StepList steps(program_.steps, Direction::forward, Dimension::tp);
  const StepId product = steps.compute("Y_part = X A", gemm(whole(x_), whole(a_), part));
  const StepId summed =
      options_.sequence_parallel
          ? steps.communicate("ReduceScatter Y",
                              reduce_scatter(tp_, part, whole(y_), sequence_shards_), {{product}})
          : steps.communicate("AllReduce Y", all_reduce(tp_, part, whole(y_)), {{product}});
  add_bias(steps, summed);
  return std::move(program_);
}

/// The whole dY on every rank: replicated already, or gathered along the sequence.
View RowLinear::output_gradient(StepList& steps, StepList::After& ready) {
  const DType dtype = options_.dtype;
  const View dy = whole(program_.add(along_sequence(generated("dY", dtype, shard_, hidden_))));
  if (!options_.sequence_parallel) return dy;
  const View all = whole(program_.add(activation("dY_gathered", dtype, tokens_, hidden_)));
  ready = {{steps.communicate("AllGather dY", all_gather(tp_, dy, all, sequence_shards_))}};
  return all;
}

Program RowLinear::backward() {
  const DType dtype = options_.dtype;
  StepList steps(program_.steps, Direction::backward, Dimension::tp);
  StepList::After ready;
  const View dy = output_gradient(steps, ready);
  const View dx = whole(program_.add(
      checked(at_cols(activation("dX", dtype, tokens_, rows_.size), ffn_, rows_.begin))));
  const View da = whole(program_.add(
      checked(at_rows(gradient("dA", dtype, rows_.size, hidden_), ffn_, rows_.begin))));
  steps.compute("dX = dY A^T", gemm(dy, whole(a_), dx, {.trans_b = true}), ready);
  steps.compute("dA = X^T dY", gemm(whole(x_), dy, da, {.trans_a = true}));
  if (bias_) {
    const View db = whole(program_.add(checked(gradient("db", dtype, 1, hidden_))));
    steps.compute("db = column sums of dY", compute_op(ComputeKind::column_sum, {dy}, {db}));
  }
  return std::move(program_);
}

Program make(const ModelShape& model, const Layout& layout, const PatternOptions& options,
             Rank rank) {
  RowLinear layer(model, layout, options, rank);
  return options.direction == Direction::forward ? layer.forward() : layer.backward();
}

void reference_forward(Program& p, View x, View a, View y, const ModelShape& model,
                       const Layout& layout, const PatternOptions& options) {
  StepList steps(p.steps, Direction::forward, Dimension::tp);
  const GemmForm split{.ways = layout.size(Dimension::tp)};
  if (!has_bias(model, options)) {
    steps.compute("Y = X A", gemm(x, a, y, split));
    return;
  }
  const View xa = p.whole(p.add(activation("XA", options.dtype, y.rows, y.cols)));
  const View b = p.whole(p.add(weight("b", options.dtype, 1, y.cols, x.cols)));
  steps.compute("XA = X A", gemm(x, a, xa, split));
  steps.compute("Y = XA + b", compute_op(ComputeKind::bias, {xa, b}, {y}));
}

void reference_backward(Program& p, View x, View a, const ModelShape& model,
                        const PatternOptions& options) {
  const DType dtype = options.dtype;
  const View dy = p.whole(p.add(generated("dY", dtype, x.rows, a.cols)));
  const View dx = p.whole(p.add(checked(activation("dX", dtype, x.rows, x.cols))));
  const View da = p.whole(p.add(checked(gradient("dA", dtype, a.rows, a.cols))));
  StepList steps(p.steps, Direction::backward, Dimension::tp);
  steps.compute("dX = dY A^T", gemm(dy, a, dx, {.trans_b = true}));
  steps.compute("dA = X^T dY", gemm(x, dy, da, {.trans_a = true}));
  if (has_bias(model, options)) {
    const View db = p.whole(p.add(checked(gradient("db", dtype, 1, a.cols))));
    steps.compute("db = column sums of dY", compute_op(ComputeKind::column_sum, {dy}, {db}));
  }
}

Program make_reference(const ModelShape& model, const Layout& layout,
                       const PatternOptions& options) {
  require_one_way("row-allreduce", options.direction);
  const DType dtype = options.dtype;
  const Index tokens = tokens_of(model, options);
  Program p;
  const View x = p.whole(p.add(generated("X", dtype, tokens, model.ffn)));
  const View a = p.whole(p.add(weight("A", dtype, model.ffn, model.hidden, model.ffn)));
  if (options.direction == Direction::forward) {
    const View y = p.whole(p.add(checked(activation("Y", dtype, tokens, model.hidden))));
    reference_forward(p, x, a, y, model, layout, options);
  } else {
    reference_backward(p, x, a, model, options);
  }
  return p;
}

std::vector<std::string> option_texts(const PatternOptions& options) {
  return {fmt::format("bias={}", options.bias),
          fmt::format("sequence_parallel={}", options.sequence_parallel)};
}

}  // namespace

const Pattern& row_allreduce_pattern() {
  static const Pattern pattern{
      .name = "row-allreduce",
      .summary = "row-parallel linear layer: AllReduce of its output (or ReduceScatter, AllGather)",
      .dim = Dimension::tp,
      .directions = {Direction::forward, Direction::backward},
      .sweep = {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter},
      .default_model = "tiny",
      .make = make,
      .make_reference = make_reference,
      .option_texts = option_texts};
  return pattern;
}

}  // namespace weft
