// Operations that only move elements: copy (and the collectives of one rank), relayout and its
// inverse.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/reference_rules.hpp"
#include "patterns/error.hpp"

namespace weft::reference {

View flat_part(const View& from, Index begin, Index count) {
  const bool gapless = from.contiguous();
  if (gapless && begin + count <= from.elements()) {
    return {.tensor = from.tensor,
            .slot = from.slot,
            .slot_per = {0, 0},
            .offset = from.offset + begin,
            .rows = 1,
            .cols = count,
            .ld = count};
  }
  fail_usage(
      fmt::format("reference: elements {} to {} of an operand of {}x{} (row stride {}) are "
                  "copied to another shape; use a view without gaps that holds them all",
                  begin, begin + count, from.rows, from.cols, from.ld));
}

namespace {

void paste(const Block& from, Block& to, Index row, Index col) {
  for (Index r = 0; r < from.rows; ++r) {
    for (Index c = 0; c < from.cols; ++c) to.set(row + r, col + c, from.get(r, c));
  }
}

}  // namespace

Block copied(Evaluator& evaluator, int step, const View& from, const View& to, const Area& area) {
  if (from.cols == to.cols) return evaluator.fetch(from, step, area);
  Block block(area.rows, area.cols);
  for (Index r = 0; r < area.rows; ++r) {
    const Index begin = (area.row + r) * to.cols + area.col;
    const View part = flat_part(from, begin, area.cols);
    paste(evaluator.fetch(part, step, whole_of(part)), block, r, 0);
  }
  return block;
}

Block copy(const Rule& rule) {
  return copied(rule.evaluator, rule.step, rule.in(0), rule.out(), rule.area);
}

Block relayout(const Rule& rule) {
  const Index rows = rule.out().rows, end = rule.area.col + rule.area.cols;
  Block block(rule.area.rows, rule.area.cols);
  Index left = 0;  // first column of the block
  for (Index width : rule.op.counts) {
    const Index first = std::max(left, rule.area.col), last = std::min(left + width, end);
    if (first < last) {
      View part = flat_part(rule.in(0), rows * left, rows * width);
      part.rows = rows;
      part.cols = part.ld = width;
      const Area area{rule.area.row, first - left, rule.area.rows, last - first};
      paste(rule.evaluator.fetch(part, rule.step, area), block, 0, first - rule.area.col);
    }
    left += width;
  }
  return block;
}

namespace {

/// The longest run of Y, within one row, whose elements follow each other in G from `element` on.
Area run_of(const Rule& rule, Index element) {
  const Index rows = rule.in(0).rows;
  Index left = 0;
  for (Index width : rule.op.counts) {
    if (element < rows * (left + width)) {
      const Index inside = element - rows * left;
      return {inside / width, left + inside % width, 1, width - inside % width};
    }
    left += width;
  }
  fail_usage(
      fmt::format("reference: split_layout has widths for {} elements but {} is asked for; the "
                  "widths must add up to the columns",
                  rows * left, element));
}

}  // namespace

Block split_layout(const Rule& rule) {
  rule.demand(0, rule.area.rows == rule.out().rows && rule.area.cols == rule.out().cols
                     ? whole_of(rule.in(0))
                     : Area{});
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < rule.area.rows; ++r) {
    for (Index c = 0; c < rule.area.cols;) {
      Area run = run_of(rule, (rule.area.row + r) * rule.out().cols + rule.area.col + c);
      run.cols = std::min(run.cols, rule.area.cols - c);
      paste(rule.read(0, run), block, r, c);
      c += run.cols;
    }
  }
  return block;
}

bool only_moves(const Compute& op) {
  switch (op.kind) {
    case ComputeKind::copy:
    case ComputeKind::relayout:
    case ComputeKind::split_layout:
    case ComputeKind::permute:
      return true;
    case ComputeKind::activation:
    case ComputeKind::activation_grad:
      return op.act == Activation::identity || op.act == Activation::relu;
    case ComputeKind::top_k:
    case ComputeKind::top_k_grad:
      return !op.normalize;
    default:
      return false;
  }
}

RuleFunction rule_of(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::gemm:
      return gemm;
    case ComputeKind::grouped_gemm:
      return grouped_gemm;
    case ComputeKind::grouped_wgrad:
      return grouped_wgrad;
    case ComputeKind::bias:
      return bias;
    case ComputeKind::activation:
      return activation;
    case ComputeKind::activation_grad:
      return activation_grad;
    case ComputeKind::softmax:
      return softmax;
    case ComputeKind::softmax_grad:
      return softmax_grad;
    case ComputeKind::layer_norm:
      return layer_norm;
    case ComputeKind::top_k:
      return top_k;
    case ComputeKind::top_k_grad:
      return top_k_grad;
    case ComputeKind::count_tokens:
      return count_tokens;
    case ComputeKind::permute:
      return permute;
    case ComputeKind::permute_grad:
      return permute_grad;
    case ComputeKind::unpermute:
      return unpermute;
    case ComputeKind::unpermute_grad:
      return unpermute_grad;
    case ComputeKind::relayout:
      return relayout;
    case ComputeKind::split_layout:
      return split_layout;
    case ComputeKind::reduce:
      return reduce;
    case ComputeKind::column_sum:
      return column_sum;
    case ComputeKind::copy:
      return copy;
    case ComputeKind::scale:
      return scale;
    case ComputeKind::add:
      return add;
    case ComputeKind::sgd:
      return sgd;
    case ComputeKind::adam:
      return adam;
  }
  fail_usage("reference: an operation of a kind unknown to it");
}

}  // namespace weft::reference
