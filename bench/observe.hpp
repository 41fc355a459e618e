// Traffic of one measured cell: instruments a few iterations, fills the row, writes the files.
#pragma once

#include <functional>
#include <vector>

#include "bench/bound_case.hpp"
#include "bench/clock_sync.hpp"
#include "bench/runner.hpp"

namespace weft {

struct Observed {
  const RunContext& context;
  const Cell& cell;
  BoundCase& bound;
  CommonStart& start;
  const HostClocks& clocks;
  std::function<void()> progress;  // for the watchdog
};

/// Collective, after the cell was timed. Adds the traffic columns to `row`, which has identity and
/// times; writes flows, traffic lines and the trace where they are asked for (rank 0). Returns the
/// lines of --traffic, one a dimension and network. A compute phase has no traffic, only a trace.
std::vector<Row> observe(Row& row, const Observed& observed, double p50_us);

}  // namespace weft
