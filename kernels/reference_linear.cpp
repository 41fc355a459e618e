// Sums of products and of rows: gemm, its grouped forms, reduce, column_sum.
#include <algorithm>
#include <array>

#include "kernels/reference_rules.hpp"

namespace weft::reference {

namespace {

/// Sums for a whole area of an output, each as in SumOf.
struct Sums {
  Sums(Index rows_, Index cols_)
      : rows(rows_), cols(cols_), sums(static_cast<std::size_t>(rows_ * cols_)) {}
  Index rows, cols;
  std::vector<SumOf> sums;

  SumOf& at(Index row, Index col) { return sums[static_cast<std::size_t>(row * cols + col)]; }
  Block finish(const Rule& rule) const {
    Block block(rows, cols);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < cols; ++c) {
        block.set(r, c, rule.sum(sums[static_cast<std::size_t>(r * cols + c)]));
      }
    }
    return block;
  }
};

/// Adds the products of one row of A with `Width` columns of B to their sums. The sums of
/// neighbouring columns are independent, so this becomes vector code without changing any order.
template <int Width, bool Exact>
void add_products(const Block& a, Index row, const Block& b, Index col, SumOf* sums) {
  std::array<double, Width> value, squares{}, path{}, bound{}, variance{};
  for (int w = 0; w < Width; ++w) value[w] = sums[w].value;
  const std::size_t first = a.at(row, 0);
  for (Index k = 0; k < a.cols; ++k) {
    const std::size_t left = first + static_cast<std::size_t>(k), right = b.at(k, col);
    const double x = a.value[left], *y = &b.value[right];
    for (int w = 0; w < Width; ++w) {
      const double term = x * y[w];
      value[w] += term;
      const double step = power_of_two_below(value[w]);
      squares[w] += term * term;
      path[w] += step * step;
    }
    if constexpr (!Exact) {
      const double x_bound = a.bound[left], x_sigma = a.sigma[left] * a.sigma[left];
      const double *y_bound = &b.bound[right], *y_sigma = &b.sigma[right];
      for (int w = 0; w < Width; ++w) {
        const double y_variance = y_sigma[w] * y_sigma[w];
        bound[w] += std::fabs(x) * y_bound[w] + x_bound * (std::fabs(y[w]) + y_bound[w]);
        variance[w] += x * x * y_variance + x_sigma * (y[w] * y[w] + y_variance);
      }
    }
  }
  for (int w = 0; w < Width; ++w) {
    sums[w].terms += static_cast<double>(a.cols);
    sums[w].value = value[w];
    sums[w].squares += squares[w];
    sums[w].path += path[w];
    sums[w].inherited.bound += bound[w];
    sums[w].inherited.variance += variance[w];
  }
}

template <bool Exact>
void add_row_of_products(const Block& a, Index row, const Block& b, SumOf* sums) {
  constexpr int kWidth = 8;
  Index col = 0;
  for (; col + kWidth <= b.cols; col += kWidth) {
    add_products<kWidth, Exact>(a, row, b, col, sums + col);
  }
  for (; col < b.cols; ++col) add_products<1, Exact>(a, row, b, col, sums + col);
}

/// sums(row.., col..) += A*B
void multiply(const Block& a, const Block& b, Sums& sums, Index row, Index col) {
  const bool exact = a.exact() && b.exact();
  for (Index r = 0; r < a.rows; ++r) {
    SumOf* into = &sums.at(row + r, col);
    exact ? add_row_of_products<true>(a, r, b, into) : add_row_of_products<false>(a, r, b, into);
  }
}

/// A factor of a product: an operand of the rule, whose op() starts at `origin` and may be
/// transposed.
struct Factor {
  std::size_t operand;
  Area origin;  // in the operand, before transposition; all of it
  bool transposed;

  Area part(Index row, Index rows, Index col, Index cols) const {
    if (transposed) return {origin.row + col, origin.col + row, cols, rows};
    return {origin.row + row, origin.col + col, rows, cols};
  }
};

/// sums(row.., col..) += rows [first_row, +rows) of op(A) times columns [first_col, +cols) of
/// op(B), k terms each, in panels that fit in memory.
struct Product {
  const Rule& rule;
  Factor a, b;
  Index k;

  void run(Area out, Sums& sums, Index row, Index col) const {
    if (k == 0 || out.elements() == 0) return;
    rule.demand(a.operand, a.part(out.row, out.rows, 0, k));
    rule.demand(b.operand, b.part(0, k, out.col, out.cols));
    const Index panel = std::max<Index>(1, kLargestPanel / k);
    for (Index r = 0; r < out.rows; r += panel) {
      const Index rows = std::min(panel, out.rows - r);
      const Block left = rule.read(a.operand, a.part(out.row + r, rows, 0, k), a.transposed);
      for (Index c = 0; c < out.cols; c += panel) {
        const Index cols = std::min(panel, out.cols - c);
        const Block right = rule.read(b.operand, b.part(0, k, out.col + c, cols), b.transposed);
        multiply(left, right, sums, row + r, col + c);
      }
    }
  }

  static constexpr Index kLargestPanel = 1 << 20;
};

/// Calls fn(segment, first, count) for the parts of the rows [first, first + count) by segment.
template <class Fn>
void for_each_segment(const std::vector<Index>& starts, Index first, Index count, Fn&& fn) {
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    const Index begin = std::max(first, starts[s]), end = std::min(first + count, starts[s + 1]);
    if (begin < end) fn(static_cast<Index>(s), begin, end - begin);
  }
}

Index experts_of(const Rule& rule, std::size_t segments) {
  return rule.op.experts > 0 ? rule.op.experts : static_cast<Index>(segments);
}

}  // namespace

Block gemm(const Rule& rule) {
  const Compute& op = rule.op;
  const Index k = op.trans_a ? rule.in(0).rows : rule.in(0).cols;
  Sums sums(rule.area.rows, rule.area.cols);
  Product{rule, {0, {}, op.trans_a}, {1, {}, op.trans_b}, k}.run(rule.area, sums, 0, 0);
  return sums.finish(rule);
}

/// Rows beyond the last segment belong to no expert and are zero: an operand's capacity may exceed
/// what was routed.
Block grouped_gemm(const Rule& rule) {
  const Compute& op = rule.op;
  const std::vector<Index>& starts = rule.evaluator.segments(rule.step, rule.in(2));
  const Index experts = experts_of(rule, starts.size() - 1);
  const Index stacked = rule.in(1).rows / experts;
  const Index k = op.trans_b ? rule.in(1).cols : stacked;
  Sums sums(rule.area.rows, rule.area.cols);
  for_each_segment(starts, rule.area.row, rule.area.rows, [&](Index s, Index first, Index count) {
    const Area expert{s % experts * stacked, 0, 0, 0};
    Product{rule, {0, {}, false}, {1, expert, op.trans_b}, k}.run(
        {first, rule.area.col, count, rule.area.cols}, sums, first - rule.area.row, 0);
  });
  return sums.finish(rule);
}

Block grouped_wgrad(const Rule& rule) {
  const std::vector<Index>& starts = rule.evaluator.segments(rule.step, rule.in(2));
  const Index experts = experts_of(rule, starts.size() - 1);
  const Index stacked = rule.out().rows / experts;
  Sums sums(rule.area.rows, rule.area.cols);
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    const Index top = static_cast<Index>(s) % experts * stacked;
    const Index first = std::max(rule.area.row, top);
    const Index end = std::min(rule.area.row + rule.area.rows, top + stacked);
    if (first >= end) continue;
    const Area segment{starts[s], 0, 0, 0};
    Product{rule, {0, segment, true}, {1, segment, false}, starts[s + 1] - starts[s]}.run(
        {first - top, rule.area.col, end - first, rule.area.cols}, sums, first - rule.area.row, 0);
  }
  return sums.finish(rule);
}

namespace {

/// Sums the rows first, first + stride, ... of the first operand.
void add_rows(const Rule& rule, Index first, Index stride, Index count, Index row, Block& result) {
  std::vector<Summation> sums(static_cast<std::size_t>(rule.area.cols));
  const Index chunk = stride == 1 ? std::max<Index>(1, (1 << 18) / rule.area.cols) : 1;
  for (Index i = 0; i < count; i += chunk) {
    const Index rows = std::min(chunk, count - i);
    const Block block = rule.read(0, {first + i * stride, rule.area.col, rows, rule.area.cols});
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < block.cols; ++c) {
        sums[static_cast<std::size_t>(c)].add(block.get(r, c));
      }
    }
  }
  for (Index c = 0; c < rule.area.cols; ++c) {
    result.set(row, c, rule.sum(sums[static_cast<std::size_t>(c)]));
  }
}

}  // namespace

Block reduce(const Rule& rule) {
  const Index rows = rule.out().rows, blocks = rule.in(0).rows / rows;
  for (Index b = 0; b < blocks; ++b) {
    rule.demand(0, {b * rows + rule.area.row, rule.area.col, rule.area.rows, rule.area.cols});
  }
  Block result(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < rule.area.rows; ++r) {
    add_rows(rule, rule.area.row + r, rows, blocks, r, result);
  }
  return result;
}

Block column_sum(const Rule& rule) {
  rule.demand(0, {0, rule.area.col, rule.in(0).rows, rule.area.cols});
  Block result(1, rule.area.cols);
  add_rows(rule, 0, 1, rule.in(0).rows, 0, result);
  return result;
}

}  // namespace weft::reference
