// Operations that work on every element alone. Errors: the operands' times the derivative, second
// order included where the function is curved, and the units of roundoff of a plain f32 formula
// with library functions good to 2 units in the last place.
#include <algorithm>
#include <array>
#include <numbers>

#include "kernels/reference_rules.hpp"

namespace weft::reference {

namespace {

/// A function at a point: value, first derivative, largest second derivative anywhere, and the
/// roundoff of an f32 evaluation in units of u = 2^-24.
struct Curve {
  double value, slope, curvature, units;
};

double normal_density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
}
double normal_tail(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double logistic(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

/// x*Phi(x). Units: the usual x/2*(1 + erf) cancels for x < 0, so they count against |x|.
Curve gelu(double x) {
  const double tail = normal_tail(x), density = normal_density(x);
  return {x * tail, tail + x * density, 0.8, 4 * std::fabs(x)};
}
Curve gelu_slope(double x) {
  const double density = normal_density(x);
  return {normal_tail(x) + x * density, (2 - x * x) * density, 1.2, 8};
}
/// x/(1 + e^-x)
Curve silu(double x) {
  const double s = logistic(x), value = x * s;
  return {value, s * (1 + x * (1 - s)), 0.5, 6 * std::fabs(value)};
}
Curve silu_slope(double x) {
  const double s = logistic(x);
  return {s * (1 + x * (1 - s)), s * (1 - s) * (2 + x * (1 - 2 * s)), 0.5, 8};
}

Estimate along(const Curve& curve, const Estimate& x) {
  Error error;
  error.from(x, curve.slope);
  error.rounding(0.5 * curve.curvature * x.bound * x.bound);
  error.units(1, curve.units).rounding(kTiny);
  return error.around(curve.value);
}

Estimate relu(const Estimate& x) {
  const bool open = x.value + x.bound > 0;
  return Error().from(x, open ? 1 : 0).around(std::max(x.value, 0.0));
}
/// Where x may have either sign, so may have the derivative either value.
Estimate relu_slope(const Estimate& x) {
  const bool uncertain = x.bound > 0 && std::fabs(x.value) <= x.bound;
  return {x.value > 0 ? 1.0 : 0.0, uncertain ? 1.0 : 0.0, uncertain ? 1.0 : 0.0};
}

Estimate act_value(Activation act, const Estimate& x) {
  switch (act) {
    case Activation::identity:
      return x;
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return along(gelu(x.value), x);
    case Activation::swiglu:
      return along(silu(x.value), x);
  }
  return x;
}
Estimate act_slope(Activation act, const Estimate& x) {
  switch (act) {
    case Activation::identity:
      return {1, 0, 0};
    case Activation::relu:
      return relu_slope(x);
    case Activation::gelu:
      return along(gelu_slope(x.value), x);
    case Activation::swiglu:
      return along(silu_slope(x.value), x);
  }
  return x;
}

Estimate product(const Estimate& a, const Estimate& b) {
  const double value = a.value * b.value;
  Error error = product_error(a, b);
  return error.rounding(half_ulp(value, DType::f32)).rounding(kTiny).around(value);
}

/// Reads `N` operands over the area (a single row counts for all rows) and maps fn over them.
template <std::size_t N, class Fn>
Block map(const Rule& rule, Fn&& fn) {
  std::array<Block, N> operands;
  const auto part = [&](std::size_t i) {
    return rule.in(i).rows == 1 && rule.out().rows > 1 ? Area{0, rule.area.col, 1, rule.area.cols}
                                                       : rule.area;
  };
  for (std::size_t i = 0; i < N; ++i) rule.demand(i, part(i));
  for (std::size_t i = 0; i < N; ++i) operands[i] = rule.read(i, part(i));
  Block result(rule.area.rows, rule.area.cols);
  for (Index r = 0; r < result.rows; ++r) {
    for (Index c = 0; c < result.cols; ++c) {
      std::array<Estimate, N> at;
      for (std::size_t i = 0; i < N; ++i) at[i] = operands[i].get(operands[i].rows == 1 ? 0 : r, c);
      result.set(r, c, fn(at));
    }
  }
  return result;
}

template <std::size_t N>
using At = std::array<Estimate, N>;

}  // namespace

Block bias(const Rule& rule) {
  return map<2>(rule, [](const At<2>& in) {
    const double value = in[0].value + in[1].value;
    return Error()
        .from(in[0], 1)
        .from(in[1], 1)
        .rounding(half_ulp(value, DType::f32))
        .around(value);
  });
}

Block add(const Rule& rule) {
  return map<2>(rule, [&](const At<2>& in) {
    Summation sum;
    sum.add(in[0]);
    sum.add(in[1]);
    return rule.sum(sum);
  });
}

Block scale(const Rule& rule) {
  return map<1>(rule, [&](const At<1>& in) {
    const double value = rule.op.factor * in[0].value;
    return Error().from(in[0], rule.op.factor).units(2, value).around(value);
  });
}

Block activation(const Rule& rule) {
  const Activation act = rule.op.act;
  if (act == Activation::swiglu) {
    return map<2>(rule, [&](const At<2>& in) { return product(act_value(act, in[0]), in[1]); });
  }
  return map<1>(rule, [&](const At<1>& in) { return act_value(act, in[0]); });
}

Block activation_grad(const Rule& rule) {
  const Activation act = rule.op.act;
  if (act == Activation::identity) return map<1>(rule, [](const At<1>& in) { return in[0]; });
  if (act != Activation::swiglu) {
    return map<2>(rule, [&](const At<2>& in) { return product(in[0], act_slope(act, in[1])); });
  }
  if (rule.output == 0) {
    return map<3>(rule, [&](const At<3>& in) {
      return product(product(in[0], in[2]), act_slope(act, in[1]));
    });
  }
  return map<2>(rule, [&](const At<2>& in) { return product(in[0], act_value(act, in[1])); });
}

Block sgd(const Rule& rule) {
  return map<2>(rule, [&](const At<2>& in) {
    const double step = rule.op.factor * in[1].value, value = in[0].value - step;
    Error error;
    error.from(in[0], 1).from(in[1], rule.op.factor).units(2, step);
    return error.rounding(half_ulp(value, DType::f32)).around(value);
  });
}

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8;

/// Moments after a step: b*old + (1 - b)*now. The constants b and 1 - b are rounded too.
Estimate moment(double beta, const Estimate& old, const Estimate& now) {
  const double kept = beta * old.value, added = (1 - beta) * now.value;
  Error error;
  error.from(old, beta).from(now, 1 - beta).units(3, kept).units(3, added).rounding(kTiny);
  return error.around(kept + added);
}

/// The square of the gradient, which the second moment averages.
Estimate squared(const Estimate& g) {
  Error error;
  error.from(g, 2 * g.value).units(1, g.value * g.value).rounding(g.bound * g.bound);
  return error.around(g.value * g.value);
}

/// The relative step mhat/(sqrt(vhat) + eps) as a function of the gradient and the old moments.
struct AdamStep {
  double correction1, correction2;

  explicit AdamStep(int step)
      : correction1(1 - std::pow(kBeta1, step)), correction2(1 - std::pow(kBeta2, step)) {}
  double operator()(double g, double m, double v) const {
    const double mean = (kBeta1 * m + (1 - kBeta1) * g) / correction1;
    const double square = (kBeta2 * std::max(v, 0.0) + (1 - kBeta2) * g * g) / correction2;
    return mean / (std::sqrt(square) + kEpsilon);
  }
  /// How far it may be from the value at the centre. It is steep near g = 0, so not by derivatives:
  /// by the ends of all three intervals, and where it turns between them (derivative by g zero,
  /// without eps).
  double spread(const Estimate& g, const Estimate& m, const Estimate& v) const {
    const double centre = (*this)(g.value, m.value, v.value);
    double spread = 0;
    for (double mean : {m.value - m.bound, m.value + m.bound}) {
      for (double square : {v.value - v.bound, v.value + v.bound}) {
        const double turn = (1 - kBeta1) * kBeta2 * square / (kBeta1 * mean * (1 - kBeta2));
        const double inside =
            std::isfinite(turn) ? std::clamp(turn, g.value - g.bound, g.value + g.bound) : g.value;
        for (double at : {g.value - g.bound, g.value + g.bound, inside}) {
          spread = std::max(spread, std::fabs((*this)(at, mean, square) - centre));
        }
      }
    }
    return spread;
  }
};

}  // namespace

/// Kingma and Ba 2015, algorithm 1. An implementation may use the moments before or after their
/// rounding to storage.
Block adam(const Rule& rule) {
  if (rule.output == 1) {
    return map<4>(rule, [](const At<4>& in) { return moment(kBeta1, in[2], in[1]); });
  }
  if (rule.output == 2) {
    return map<4>(rule, [](const At<4>& in) { return moment(kBeta2, in[3], squared(in[1])); });
  }
  const AdamStep relative(rule.op.step);
  const auto moment_roundoff = [&](std::size_t operand) {
    const DType dtype = rule.evaluator.dtype(rule.in(operand));
    return dtype == DType::f32 ? 0.0 : unit_roundoff(dtype);
  };
  const double stored = moment_roundoff(2) + 0.5 * moment_roundoff(3), rate = rule.op.factor;
  return map<4>(rule, [&](const At<4>& in) {
    const double step = rate * relative(in[1].value, in[2].value, in[3].value);
    const double value = in[0].value - step;
    Error error;
    error.from(in[0], 1).rounding(std::fabs(rate) * relative.spread(in[1], in[2], in[3]));
    error.units(12, step).rounding(stored * std::fabs(step));
    return error.rounding(half_ulp(value, DType::f32)).around(value);
  });
}

}  // namespace weft::reference
