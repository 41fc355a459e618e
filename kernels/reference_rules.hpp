// One rule for each operation: how an area of an output follows from the inputs, in exact
// arithmetic (double), with the error of doing it in f32. Rounding to storage, `accumulate` and
// memory are the evaluator's part. Private to kernels/reference*.cpp.
#pragma once

#include "kernels/reference_evaluator.hpp"

namespace weft::reference {

/// One evaluation: which operation, which of its outputs, which area of that.
struct Rule {
  Evaluator& evaluator;
  const Compute& op;
  int step;
  int output;
  Area area;

  const View& in(std::size_t operand) const { return op.in[operand]; }
  const View& out() const { return op.out[static_cast<std::size_t>(output)]; }
  DType out_dtype() const { return evaluator.dtype(out()); }
  void demand(std::size_t operand, const Area& part) const {
    evaluator.demand(in(operand), step, part);
  }
  Block read(std::size_t operand, const Area& part, bool transposed = false) const {
    return evaluator.fetch(in(operand), step, part, transposed);
  }
  /// The estimate of a sum that `ways` ranks may have made.
  Estimate sum(const SumOf& s) const { return sum_error(s, op.ways, out_dtype()).around(s.value); }
};

using RuleFunction = Block (*)(const Rule&);
RuleFunction rule_of(ComputeKind kind);

// Linear algebra
Block gemm(const Rule&);
Block grouped_gemm(const Rule&);
Block grouped_wgrad(const Rule&);
Block reduce(const Rule&);
Block column_sum(const Rule&);

// Element by element
Block bias(const Rule&);
Block activation(const Rule&);
Block activation_grad(const Rule&);
Block scale(const Rule&);
Block add(const Rule&);
Block sgd(const Rule&);
Block adam(const Rule&);

// Row by row
Block softmax(const Rule&);
Block softmax_grad(const Rule&);
Block layer_norm(const Rule&);

// Mixture of experts
Block top_k(const Rule&);
Block top_k_grad(const Rule&);
Block count_tokens(const Rule&);
Block permute(const Rule&);
Block permute_grad(const Rule&);
Block unpermute(const Rule&);
Block unpermute_grad(const Rule&);

// Moves
Block copy(const Rule&);
Block relayout(const Rule&);
Block split_layout(const Rule&);

/// An area of a copy of `from` into `to`: the same elements in the same row-major order, also where
/// the two have different shapes. Collectives of one rank are such copies.
Block copied(Evaluator& evaluator, int step, const View& from, const View& to, const Area& area);

/// Which part of `from` the elements [begin, begin + count) in row-major order are; `from` must
/// have no gaps between rows. Throws Error(usage) otherwise, or if there are not so many.
View flat_part(const View& from, Index begin, Index count);

/// The operation gives elements of its first input as they are (or zero): nothing is rounded unless
/// the types differ.
bool only_moves(const Compute& op);

}  // namespace weft::reference
