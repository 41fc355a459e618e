// When to stop sampling: how many iterations until the next decision, and whether enough is known.
#pragma once

#include <string_view>

#include "bench/statistics.hpp"

namespace weft {

struct Options;

struct StoppingRule {
  double precision = 0.02;  // half-width of the median's 95% interval, relative to it
  double min_time_us = 50e3, max_time_us = 1e6;  // wall time of its blocks
  int min_samples = 5, max_samples = 20000;
};

/// What --precision, --min-time and --max-time say.
StoppingRule stopping_rule(const Options& options);

/// Iterations of `period_us` each between two decisions.
int block_size(double period_us);
/// The same, but no more than one iteration beyond the time that is left after `spent_us`.
int block_size(double period_us, const StoppingRule& rule, double spent_us);

/// Why sampling may end: "precision", "max_time" or "iterations"; empty: go on.
std::string_view stop_reason(const Summary& summary, const StoppingRule& rule, double spent_us);

}  // namespace weft
