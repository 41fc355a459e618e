// When to stop sampling: how many iterations until the next decision, and whether enough is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

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

/// Which iterations of an attempt are kept as samples, by number from 0: all, until there are
/// max_samples of them before the least time is over; then every second one of those so far and of
/// what follows, and so on. So the least time is kept, and samples are from all of it.
class SampleStride {
 public:
  bool keeps(std::int64_t iteration) const { return iteration % stride_ == 0; }
  /// Whether it doubled: of `samples` so far, every second one stays.
  bool widen(std::size_t samples, const StoppingRule& rule, double spent_us);

 private:
  std::int64_t stride_ = 1;
};

/// What stays of successive samples when the stride doubles.
template <typename T>
void keep_every_second(std::vector<T>& samples) {
  for (std::size_t i = 0; 2 * i < samples.size(); ++i) samples[i] = samples[2 * i];
  samples.resize((samples.size() + 1) / 2);
}

/// Whether sampling might end now; before that a summary would be for nothing.
bool may_stop(std::size_t samples, const StoppingRule& rule, double spent_us);
/// Why sampling may end: "precision", "max_time" or "iterations"; empty: go on.
std::string_view stop_reason(const Summary& summary, const StoppingRule& rule, double spent_us);

}  // namespace weft
