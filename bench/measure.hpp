// The whole measurement of one cell, in one function.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/clock_sync.hpp"
#include "bench/row_writer.hpp"
#include "bench/statistics.hpp"

namespace weft {

struct StoppingRule {
  double precision = 0.02;  // half-width of the median's 95% interval, relative to it
  double min_time_us = 50e3, max_time_us = 1e6;
  int min_samples = 5, max_samples = 20000;
};

struct Measurement {
  Summary summary;               // of max over ranks(end) - start, valid samples, us
  double first_us = 0;           // the very first iteration, before any warm-up
  int late = 0;                  // samples left out because a rank started late
  std::string_view sync;         // "clock" | "barrier"
  std::string_view stop_reason;  // "precision" | "max_time" | "iterations"
  std::vector<RowWriter::Sample>
      raw;  // rank 0: every sample of every rank; times since the first start
};

/// Collective. Runs `iteration` until the rule says stop: the first iteration on its own, warm-up
/// until two successive blocks agree, then blocks of samples. Every rank gets the same numbers and
/// so takes the same decisions. A sample is the time from the common start to the end of the
/// slowest rank (sync=barrier: the slowest rank's own start-to-end).
Measurement measure(Bootstrap& bootstrap, CommonStart& start, const StoppingRule& rule,
                    const std::function<void()>& iteration);

}  // namespace weft
