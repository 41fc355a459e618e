// The error analysis of the reference: how far a number computed in f32 and kept in storage may lie
// from the exact one. Private to kernels/reference*.cpp.
//
// Two figures travel with every value. `bound` adds absolute values: nothing that rounds correctly
// can exceed it, but through a chain of layers it grows by a factor sqrt(K) a layer too fast, until
// it would accept anything. `sigma` adds squares: one rounding is an error spread evenly over
// [-h, h], of variance h^2/3, and roundings are independent of each other and of the signs of the
// data they meet later. A sum of such errors has the tail of a normal distribution, so the smaller
// of `bound` and kSigmas*sigma is used (2e-9: one false alarm in 500 million elements).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "patterns/types.hpp"

namespace weft::reference {

inline constexpr double kSigmas = 6.0;

/// Below this an f32 result may be flushed to zero or lose digits; exp() of the host backend gives
/// 0 below 1e-37.
inline constexpr double kTiny = 0x1p-115;

struct Estimate {
  double value = 0, bound = 0, sigma = 0;
};

/// The power of two at or below |x|; 0 for 0. Only bit operations, so that loops vectorise.
inline double power_of_two_below(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0x7FF0000000000000u);
}

/// Largest error of rounding a number of this magnitude to nearest: half the spacing there.
inline double half_ulp(double magnitude, DType dtype) {
  if (dtype == DType::i32) return 0.0;
  const double half = unit_roundoff(dtype) * power_of_two_below(magnitude);
  return std::max(half, dtype == DType::f16 ? 0x1p-25 : 0.0);
}

/// What has accumulated on the way to one value.
struct Error {
  double bound = 0, variance = 0;

  /// The error of an operand, times the derivative by it.
  Error& from(const Estimate& operand, double slope) {
    bound += std::fabs(slope) * operand.bound;
    variance += slope * slope * operand.sigma * operand.sigma;
    return *this;
  }
  /// A rounding, of at most `most`.
  Error& rounding(double most) {
    bound += most;
    variance += most * most / 3.0;
    return *this;
  }
  /// `units` unit roundoffs of f32 arithmetic at this magnitude.
  Error& units(double units, double magnitude) {
    return rounding(units * 0x1p-24 * std::fabs(magnitude));
  }
  Estimate around(double value) const {
    const double sigma = std::sqrt(variance);
    return {value, std::min(bound, kSigmas * sigma), sigma};
  }
};

/// The error that a*b has from its factors.
inline Error product_error(const Estimate& a, const Estimate& b) {
  Error error;
  error.from(a, b.value).from(b, a.value);
  error.bound += a.bound * b.bound;
  error.variance += a.sigma * a.sigma * b.sigma * b.sigma;
  return error;
}

/// What a sum collects beside its value while it is added up.
struct SumOf {
  double terms = 0;
  double value = 0;
  double squares = 0;  // sum of term^2
  double path = 0;     // sum of (power of two below |partial sum|)^2, in the order of the terms
  Error inherited;     // from the operands
};

/// Error of a sum in f32. With V the value, Q the sum of squares of the n terms and u = 2^-24:
///   never more than     c*u*sum|terms| with c = n, and sum|terms| <= sqrt(n*Q)
///   variance            u^2/3 * (path + Q): each partial sum s is rounded by up to
///   u*2^floor(log2|s|),
///                       and each product once where the processor does not fuse it with the sum.
/// Another order of the terms takes another path; on average over all orders s_k^2 is
/// (k/n)^2*V^2 + (k/n)(1-k/n)*Q, which sums to n*(V^2/3 + Q/6). So path is at least taken as
/// 0.54*n*(V^2/3 + 2*Q/3): 0.54 is the mean of (2^floor(log2 s)/s)^2, and Q counts fourfold because
/// single paths stray far from that average. Equal terms round alike: for them only the first line
/// holds. `ways` > 1: partial sums of `ways` ranks, each stored in `dtype` and reduced there. Any
/// reduction makes 2*ways - 1 roundings, allowed for as (2*ways + 2)*u(dtype)*sum|terms| or, in
/// squares, u(dtype)^2/3 * (ways*V^2/3 + V^2 + 4*(ways/6 + 1)*Q), Q fourfold because few roundings
/// do not average over orders.
Error sum_error(const SumOf& sum, int ways, DType dtype);

/// Adds the terms of a short sum one by one.
struct Summation : SumOf {
  void add(double term, const Error& error) {
    terms += 1;
    value += term;
    squares += term * term;
    const double step = power_of_two_below(value);
    path += step * step;
    inherited.bound += error.bound;
    inherited.variance += error.variance;
  }
  void add(const Estimate& term) { add(term.value, Error().from(term, 1.0)); }
  Estimate estimate(int ways = 1, DType dtype = DType::f32) const {
    return sum_error(*this, ways, dtype).around(value);
  }
};

}  // namespace weft::reference
