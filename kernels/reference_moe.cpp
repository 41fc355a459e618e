// Mixture of experts: selection, permutation, and their gradients.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "kernels/reference_rules.hpp"
#include "patterns/error.hpp"

namespace weft::reference {

namespace {

// ---- Selection ---------------------------------------------------------------------------------

Block hinted_choices(const Rule& rule) {
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    for (Index c = 0; c < block.cols; ++c) {
      const std::int32_t* choice =
          rule.evaluator.hint(rule.step, rule.out(), rule.area.row + r, rule.area.col + c);
      if (choice == nullptr) {
        fail_usage(fmt::format(
            "reference: the hint for '{}' ends before row {}; give all of its {} rows",
            rule.evaluator.tensor(rule.out()).name, rule.area.row + r, rule.out().rows));
      }
      block.set(r, c, {static_cast<double>(*choice), 0, 0});
    }
  }
  return block;
}

/// The choices of one row by its own values: largest first, ties to the smaller index.
std::vector<Index> largest_of(const Block& p, Index row, Index count) {
  std::vector<Index> order(static_cast<std::size_t>(p.cols));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return p.get(row, a).value > p.get(row, b).value; });
  order.resize(static_cast<std::size_t>(std::min(count, p.cols)));
  return order;
}

Block own_choices(const Rule& rule) {
  const Block p = rule.read(0, {rule.area.row, 0, rule.area.rows, rule.in(0).cols});
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    const std::vector<Index> order = largest_of(p, r, rule.out().cols);
    for (Index c = 0; c < block.cols; ++c) {
      const Index expert = order[static_cast<std::size_t>(rule.area.col + c)];
      block.set(r, c, {static_cast<double>(expert), 0, 0});
    }
  }
  return block;
}

/// The chosen probabilities of a row, and their sum.
struct Chosen {
  std::vector<Estimate> p;
  Estimate total;
};

Chosen chosen_of(const Block& p, const Block& indices, Index row) {
  Chosen chosen;
  Summation sum;
  for (Index c = 0; c < indices.cols; ++c) {
    const auto expert = static_cast<Index>(indices.get(row, c).value);
    if (expert < 0 || expert >= p.cols) {
      fail(ExitCode::failed, fmt::format("reference: expert {} is chosen, of {}", expert, p.cols));
    }
    chosen.p.push_back(p.get(row, expert));
    sum.add(chosen.p.back());
  }
  chosen.total = sum.estimate();
  return chosen;
}

/// a/b with errors, by interval: |a/b - a'/b'| <= (da + |a/b|*db)/(|b| - db).
Estimate quotient(const Estimate& a, const Estimate& b) {
  const double value = a.value / b.value;
  const double divisor = std::max(std::fabs(b.value) - b.bound, 0.5 * std::fabs(b.value));
  Error error;
  error.from(a, 1 / divisor).from(b, value / divisor).units(2, value);
  return error.around(value);
}

Block selected_weights(const Rule& rule) {
  const View& indices = rule.op.out[0];
  const Block p = rule.read(0, {rule.area.row, 0, rule.area.rows, rule.in(0).cols});
  rule.evaluator.confirm(indices, rule.step + 1, rule.area.row, rule.area.rows);
  const Block chosen_at = rule.evaluator.fetch(indices, rule.step + 1,
                                               {rule.area.row, 0, rule.area.rows, indices.cols});
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    const Chosen chosen = chosen_of(p, chosen_at, r);
    for (Index c = 0; c < block.cols; ++c) {
      const Estimate& own = chosen.p[static_cast<std::size_t>(rule.area.col + c)];
      block.set(r, c, rule.op.normalize ? quotient(own, chosen.total) : own);
    }
  }
  return block;
}

/// W_c = p_c/S, S = sum of the chosen: dp_c = (dW_c - sum_j dW_j W_j)/S.
std::vector<Estimate> renormalised_grad(const Block& dw, Index row, const Chosen& chosen) {
  Summation dot;
  for (std::size_t c = 0; c < chosen.p.size(); ++c) {
    const Estimate a = dw.get(row, static_cast<Index>(c)), w = quotient(chosen.p[c], chosen.total);
    dot.add(a.value * w.value, product_error(a, w).units(1, a.value * w.value));
  }
  const Estimate mean = dot.estimate();
  std::vector<Estimate> grad;
  for (std::size_t c = 0; c < chosen.p.size(); ++c) {
    const Estimate a = dw.get(row, static_cast<Index>(c));
    const double difference = a.value - mean.value;
    grad.push_back(quotient(
        Error().from(a, 1).from(mean, 1).units(1, difference).around(difference), chosen.total));
  }
  return grad;
}

}  // namespace

Block top_k(const Rule& rule) {
  if (rule.output == 1) return selected_weights(rule);
  return rule.evaluator.hinted(rule.step, rule.out()) ? hinted_choices(rule) : own_choices(rule);
}

Block top_k_grad(const Rule& rule) {
  const auto rows = [&](std::size_t i) {
    return Area{rule.area.row, 0, rule.area.rows, rule.in(i).cols};
  };
  for (std::size_t i = 0; i < 3; ++i) rule.demand(i, rows(i));
  rule.evaluator.confirm(rule.in(1), rule.step, rule.area.row, rule.area.rows);
  const Block dw = rule.read(0, rows(0)), indices = rule.read(1, rows(1)),
              p = rule.read(2, rows(2));
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    std::vector<Estimate> grad;
    if (rule.op.normalize) grad = renormalised_grad(dw, r, chosen_of(p, indices, r));
    for (Index c = 0; c < indices.cols; ++c) {
      const Index col = static_cast<Index>(indices.get(r, c).value) - rule.area.col;
      if (col < 0 || col >= block.cols) continue;
      block.set(r, col, rule.op.normalize ? grad[static_cast<std::size_t>(c)] : dw.get(r, c));
    }
  }
  return block;
}

Block count_tokens(const Rule& rule) {
  Block block(rule.area.rows, rule.area.cols);
  for (Index expert : rule.evaluator.integers(rule.in(0), rule.step)) {
    const Index row = expert / rule.out().cols - rule.area.row;
    const Index col = expert % rule.out().cols - rule.area.col;
    if (row < 0 || row >= block.rows || col < 0 || col >= block.cols) continue;
    block.value[block.at(row, col)] += 1;
  }
  return block;
}

// ---- Permutation -------------------------------------------------------------------------------

namespace {

/// Tokens or rows of S, in any order, made known together where they lie close: whole operands are
/// then evaluated at once, samples alone.
void demand_rows(const Rule& rule, std::size_t operand, const std::vector<Index>& rows, Index col,
                 Index cols) {
  if (rows.empty()) return;
  const auto [low, high] = std::minmax_element(rows.begin(), rows.end());
  const Index span = *high - *low + 1;
  if (span <= 2 * static_cast<Index>(rows.size())) {
    rule.demand(operand, {*low, col, span, cols});
  } else {
    for (Index row : rows) rule.demand(operand, {row, col, 1, cols});
  }
}

void confirm_tokens(const Rule& rule, const std::vector<Index>& tokens) {
  for (Index token : tokens) rule.evaluator.confirm(rule.in(1), rule.step, token, 1);
}

const Routing& routing_of(const Rule& rule, std::size_t indices) {
  return rule.evaluator.routing(rule.step, rule.in(indices), rule.op.experts);
}

/// The tokens of rows of S, or the rows of S of tokens.
std::vector<Index> tokens_of_area(const Routing& routing, const Area& area) {
  std::vector<Index> tokens;
  for (Index r = 0; r < area.rows; ++r) {
    tokens.push_back(routing.selection(area.row + r) / routing.choices);
  }
  return tokens;
}
std::vector<Index> rows_of_tokens(const Routing& routing, const Area& area) {
  std::vector<Index> rows;
  for (Index t = 0; t < area.rows; ++t) {
    for (Index c = 0; c < routing.choices; ++c) rows.push_back(routing.row(area.row + t, c));
  }
  return rows;
}

/// For every token of the area: the sum over its choices of rows of S (operand 0), each times
/// weight(token, choice).
template <class Weight>
Block sum_of_choices(const Rule& rule, const Routing& routing, Weight&& weight) {
  Block block(rule.area.rows, rule.area.cols);
  for (Index t = 0; t < block.rows; ++t) {
    std::vector<Summation> sums(static_cast<std::size_t>(block.cols));
    for (Index c = 0; c < routing.choices; ++c) {
      const Block row =
          rule.read(0, {routing.row(rule.area.row + t, c), rule.area.col, 1, rule.area.cols});
      const Estimate w = weight(t, c);
      for (Index i = 0; i < block.cols; ++i) {
        const Estimate s = row.get(0, i);
        sums[static_cast<std::size_t>(i)].add(s.value * w.value, product_error(s, w));
      }
    }
    for (Index i = 0; i < block.cols; ++i) {
      block.set(t, i, rule.sum(sums[static_cast<std::size_t>(i)]));
    }
  }
  return block;
}

}  // namespace

Block permute(const Rule& rule) {
  const Routing& routing = routing_of(rule, 1);
  const std::vector<Index> tokens = tokens_of_area(routing, rule.area);
  demand_rows(rule, 0, tokens, rule.area.col, rule.area.cols);
  confirm_tokens(rule, tokens);
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    const Block row =
        rule.read(0, {tokens[static_cast<std::size_t>(r)], rule.area.col, 1, rule.area.cols});
    for (Index c = 0; c < block.cols; ++c) block.set(r, c, row.get(0, c));
  }
  return block;
}

Block permute_grad(const Rule& rule) {
  const Routing& routing = routing_of(rule, 1);
  demand_rows(rule, 0, rows_of_tokens(routing, rule.area), rule.area.col, rule.area.cols);
  rule.evaluator.confirm(rule.in(1), rule.step, rule.area.row, rule.area.rows);
  return sum_of_choices(rule, routing, [](Index, Index) { return Estimate{1, 0, 0}; });
}

Block unpermute(const Rule& rule) {
  const Routing& routing = routing_of(rule, 1);
  const Area weights{rule.area.row, 0, rule.area.rows, routing.choices};
  demand_rows(rule, 0, rows_of_tokens(routing, rule.area), rule.area.col, rule.area.cols);
  rule.evaluator.confirm(rule.in(1), rule.step, rule.area.row, rule.area.rows);
  const Block w = rule.read(2, weights);
  return sum_of_choices(rule, routing, [&](Index t, Index c) { return w.get(t, c); });
}

namespace {

/// dS[row] = W[t, c]*dY_t
Block unpermute_grad_rows(const Rule& rule, const Routing& routing) {
  const std::vector<Index> tokens = tokens_of_area(routing, rule.area);
  demand_rows(rule, 0, tokens, rule.area.col, rule.area.cols);
  Block block(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < block.rows; ++r) {
    const Index token = tokens[static_cast<std::size_t>(r)];
    rule.evaluator.confirm(rule.in(2), rule.step, token, 1);
    const Index choice = routing.selection(rule.area.row + r) % routing.choices;
    const Estimate w = rule.read(3, {token, choice, 1, 1}).get(0, 0);
    const Block dy = rule.read(0, {token, rule.area.col, 1, rule.area.cols});
    for (Index c = 0; c < block.cols; ++c) {
      const Estimate at = dy.get(0, c);
      const double value = at.value * w.value;
      block.set(r, c, product_error(at, w).rounding(half_ulp(value, DType::f32)).around(value));
    }
  }
  return block;
}

/// dW[t, c] = dY_t . S[row]
Block unpermute_grad_weights(const Rule& rule, const Routing& routing) {
  const Index width = rule.in(0).cols;
  rule.demand(0, {rule.area.row, 0, rule.area.rows, width});
  demand_rows(rule, 1, rows_of_tokens(routing, rule.area), 0, width);
  rule.evaluator.confirm(rule.in(2), rule.step, rule.area.row, rule.area.rows);
  Block block(rule.area.rows, rule.area.cols);
  for (Index t = 0; t < block.rows; ++t) {
    const Block dy = rule.read(0, row_of(rule.in(0), rule.area.row + t));
    for (Index c = 0; c < block.cols; ++c) {
      const Index row = routing.row(rule.area.row + t, rule.area.col + c);
      const Block s = rule.read(1, row_of(rule.in(1), row));
      Summation dot;
      for (Index i = 0; i < width; ++i) {
        const Estimate a = dy.get(0, i), b = s.get(0, i);
        dot.add(a.value * b.value, product_error(a, b));
      }
      block.set(t, c, rule.sum(dot));
    }
  }
  return block;
}

}  // namespace

Block unpermute_grad(const Rule& rule) {
  const Routing& routing = routing_of(rule, 2);
  return rule.output == 0 ? unpermute_grad_rows(rule, routing)
                          : unpermute_grad_weights(rule, routing);
}

}  // namespace weft::reference
