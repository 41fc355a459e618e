#include "kernels/reference_bounds.hpp"

namespace weft::reference {

namespace {

/// The partial sums of `ways` ranks: rounded to storage, and rounded at each step of the reduction.
void add_reduction(Error& error, const SumOf& sum, double ways, DType dtype) {
  const double u = unit_roundoff(dtype), square = sum.value * sum.value;
  error.bound += (2 * ways + 2) * u * std::sqrt(sum.terms * sum.squares);
  error.variance += u * u / 3 * (ways * square / 3 + square + 4 * (ways / 6 + 1) * sum.squares);
}

}  // namespace

Error sum_error(const SumOf& sum, int ways, DType dtype) {
  // Errors of the terms have ancestors in common, layer upon layer. Squares add up right on average
  // over the data, but in a chain of 16 products single elements were seen at 1.6 times what they
  // give; a quarter more a sum leaves room for four times.
  constexpr double kShared = 1.25;
  constexpr double kUnit = 0x1p-24, kMeanMantissa = 0.54, kSameTerms = 1e-9;
  Error error = sum.inherited;
  if (sum.terms == 0) return error;
  if (sum.terms > 1) error.variance *= kShared;
  const double n = sum.terms, square = sum.value * sum.value;
  const double worst = n * kUnit * std::sqrt(n * sum.squares);
  error.bound += worst;
  const double any_order = kMeanMantissa * n * (square + 2 * sum.squares) / 3;
  error.variance += kUnit * kUnit / 3 * (std::max(sum.path, any_order) + sum.squares);
  if (n > 1 && n * sum.squares - square <= kSameTerms * square) error.variance += worst * worst;
  if (ways > 1) add_reduction(error, sum, ways, dtype);
  return error;
}

}  // namespace weft::reference
