// Operations over whole rows: softmax, its gradient, layer norm. An element needs its whole row.
#include <algorithm>

#include "kernels/reference_rules.hpp"

namespace weft::reference {

namespace {

/// Rows of `operand` that the area touches, whole.
Area rows_of_area(const Rule& rule, std::size_t operand) {
  return {rule.area.row, 0, rule.area.rows, rule.in(operand).cols};
}

/// Calls fn(row, block rows...) and keeps of each result the columns of the area.
template <class Fn>
Block map_rows(const Rule& rule, Fn&& fn) {
  Block result(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < result.rows; ++r) {
    const std::vector<Estimate> row = fn(r);
    for (Index c = 0; c < result.cols; ++c) {
      result.set(r, c, row[static_cast<std::size_t>(rule.area.col + c)]);
    }
  }
  return result;
}

/// y_i = e^(x_i - max) / sum: relative error of y_j is dx_j - sum_i y_i dx_i, where dx also holds
/// the rounding of x - max and 4 units for the exponential.
std::vector<Estimate> softmax_row(const Block& x, Index row) {
  const Index n = x.cols;
  double top = x.get(row, 0).value, widest = 0, total = 0;
  for (Index i = 0; i < n; ++i) top = std::max(top, x.get(row, i).value);
  std::vector<Estimate> y(static_cast<std::size_t>(n));
  std::vector<Error> errors(y.size());
  for (Index i = 0; i < n; ++i) {
    const Estimate at = x.get(row, i);
    const auto k = static_cast<std::size_t>(i);
    y[k].value = std::exp(at.value - top);
    total += y[k].value;
    widest = std::max(widest, at.bound);
    errors[k].from(at, 1).rounding(half_ulp(at.value - top, DType::f32)).units(4, 1);
  }
  Error mean;  // of the weighted sum, and of adding n positive terms
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i].value /= total;
    mean.bound += y[i].value * errors[i].bound;
    mean.variance += y[i].value * y[i].value * errors[i].variance;
  }
  mean.units(std::sqrt(static_cast<double>(n)) + 3, 1);
  // e^(2*widest) covers the second order.
  const double curved = std::exp(std::min(2 * widest, 50.0));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double factor = y[i].value * curved;
    Error error{factor * (errors[i].bound + mean.bound),
                factor * factor * (errors[i].variance + mean.variance)};
    y[i] = error.rounding(kTiny).around(y[i].value);
  }
  return y;
}

std::vector<Estimate> softmax_grad_row(const Block& dy, const Block& y, Index row) {
  Summation dot;
  for (Index i = 0; i < y.cols; ++i) {
    const Estimate a = dy.get(row, i), b = y.get(row, i);
    dot.add(a.value * b.value, product_error(a, b));
  }
  const Estimate mean = dot.estimate();
  std::vector<Estimate> dx(static_cast<std::size_t>(y.cols));
  for (Index i = 0; i < y.cols; ++i) {
    const Estimate a = dy.get(row, i), b = y.get(row, i);
    const double difference = a.value - mean.value, value = difference * b.value;
    const Estimate centred =
        Error().from(a, 1).from(mean, 1).units(1, difference).around(difference);
    dx[static_cast<std::size_t>(i)] =
        product_error(centred, b).units(1, value).rounding(kTiny).around(value);
  }
  return dx;
}

/// The part of layer norm before gamma and beta: (x - mean)*r, r = 1/sqrt(variance + eps). By
/// derivatives, r*(dx_j - mean(dx) - xhat_j*mean(xhat*dx)); rounding of x - mean like an error of
/// x.
std::vector<Estimate> normalised_row(const Block& x, Index row) {
  constexpr double kEpsilon = 1e-5;
  const auto n = static_cast<double>(x.cols);
  Summation total;
  double squares = 0;
  for (Index i = 0; i < x.cols; ++i) total.add(x.get(row, i));
  const double mean = total.value / n;
  for (Index i = 0; i < x.cols; ++i) {
    squares += (x.get(row, i).value - mean) * (x.get(row, i).value - mean);
  }
  const double r = 1 / std::sqrt(squares / n + kEpsilon);
  Error centre = sum_error(total, 1, DType::f32);
  centre.bound /= n;
  centre.variance /= n * n;
  centre.units(1, mean);
  Error spread;
  double widest = 0;
  std::vector<Estimate> hat(static_cast<std::size_t>(x.cols));
  std::vector<Error> errors(hat.size());
  for (std::size_t i = 0; i < hat.size(); ++i) {
    const Estimate at = x.get(row, static_cast<Index>(i));
    hat[i].value = (at.value - mean) * r;
    errors[i].from(at, 1).rounding(half_ulp(at.value - mean, DType::f32));
    spread.bound += std::fabs(hat[i].value) * errors[i].bound / n;
    spread.variance += hat[i].value * hat[i].value * errors[i].variance / (n * n);
    widest = std::max(widest, at.bound);
  }
  spread.units(std::sqrt(n) + 4, 1 / r);  // of the sum of squares, the root and the division
  const double curved = 1 + 4 * std::min(r * widest, 1e6);
  for (std::size_t i = 0; i < hat.size(); ++i) {
    const double own = std::fabs(hat[i].value), factor = r * curved;
    Error error{
        factor * (errors[i].bound + centre.bound + own * spread.bound),
        factor * factor * (errors[i].variance + centre.variance + own * own * spread.variance)};
    hat[i] = error.units(2, own).around(hat[i].value);
  }
  return hat;
}

}  // namespace

Block softmax(const Rule& rule) {
  const Block x = rule.read(0, rows_of_area(rule, 0));
  return map_rows(rule, [&](Index row) { return softmax_row(x, row); });
}

Block softmax_grad(const Rule& rule) {
  rule.demand(0, rows_of_area(rule, 0));
  rule.demand(1, rows_of_area(rule, 1));
  const Block dy = rule.read(0, rows_of_area(rule, 0)), y = rule.read(1, rows_of_area(rule, 1));
  return map_rows(rule, [&](Index row) { return softmax_grad_row(dy, y, row); });
}

Block layer_norm(const Rule& rule) {
  const Block x = rule.read(0, rows_of_area(rule, 0));
  const Block gamma = rule.read(1, whole_of(rule.in(1)));
  const Block beta = rule.read(2, whole_of(rule.in(2)));
  return map_rows(rule, [&](Index row) {
    std::vector<Estimate> y = normalised_row(x, row);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Estimate g = gamma.get(0, static_cast<Index>(i)),
                     b = beta.get(0, static_cast<Index>(i));
      const double scaled = g.value * y[i].value, value = scaled + b.value;
      Error error = product_error(g, y[i]);
      y[i] = error.from(b, 1).units(1, scaled).rounding(half_ulp(value, DType::f32)).around(value);
    }
    return y;
  });
}

}  // namespace weft::reference
