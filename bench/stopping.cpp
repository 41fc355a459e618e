#include "bench/stopping.hpp"

#include <algorithm>

#include "bench/options.hpp"

namespace weft {
namespace {

constexpr double kBlockUs =
    20e3;  // between two decisions: long against the exchange, short against a person's patience
constexpr int kLargestBlock = 500;
constexpr double kShortestPeriodUs = 0.01;

bool precise(const Summary& summary, const StoppingRule& rule) {
  const double half_width = (summary.ci_high - summary.ci_low) / 2;
  return summary.n >= rule.min_samples && half_width <= rule.precision * summary.p50;
}

}  // namespace

StoppingRule stopping_rule(const Options& options) {
  StoppingRule rule;
  rule.precision = options.precision;
  rule.min_time_us = options.min_time * 1e6;
  rule.max_time_us = options.max_time * 1e6;
  return rule;
}

int block_size(double period_us) {
  const double fitting = kBlockUs / std::max(period_us, kShortestPeriodUs);
  return std::clamp(static_cast<int>(fitting), 1, kLargestBlock);
}

int block_size(double period_us, const StoppingRule& rule, double spent_us) {
  const double left = std::max(rule.max_time_us - spent_us, 0.0);
  const double fitting = left / std::max(period_us, kShortestPeriodUs);
  return std::min(block_size(period_us), static_cast<int>(std::min(fitting, 1e9)) + 1);
}

bool SampleStride::widen(std::size_t samples, const StoppingRule& rule, double spent_us) {
  if (spent_us >= rule.min_time_us || samples < static_cast<std::size_t>(rule.max_samples)) {
    return false;
  }
  stride_ *= 2;
  return true;
}

bool may_stop(std::size_t samples, const StoppingRule& rule, double spent_us) {
  return spent_us >= rule.min_time_us || samples >= static_cast<std::size_t>(rule.max_samples);
}

std::string_view stop_reason(const Summary& summary, const StoppingRule& rule, double spent_us) {
  if (spent_us >= rule.min_time_us && precise(summary, rule)) return "precision";
  if (spent_us >= rule.max_time_us && summary.n >= 1) return "max_time";
  if (summary.n >= rule.max_samples) return "iterations";
  // Every start late: the clock cannot be agreed on here; end with what there is, which is nothing.
  if (spent_us >= 10 * rule.max_time_us) return "max_time";
  return "";
}

}  // namespace weft
