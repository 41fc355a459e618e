// Fills rows and traffic lines from what was planned, measured and accounted. Only here are columns
// given values.
#pragma once

#include <vector>

#include "bench/runner.hpp"

namespace weft {

/// The columns that say which cell this is and where it ran.
Row identify(const RunContext& context, const Cell& cell);
void add_times(Row& row, const Measurement& measurement);
/// Bytes, message and flow columns; rates too where the phase is communication alone.
void add_traffic(Row& row, const RunContext& context, const IterationTraffic& traffic,
                 double p50_us);
/// Gemm time of an iteration (max over ranks), its share of the row's median, its rate.
void add_gemm(Row& row, const GemmTime& gemm);

/// One line per dimension that communicates.
std::vector<TrafficLine> traffic_lines_of(const RunContext& context, const Cell& cell,
                                          const Execution& execution,
                                          const IterationTraffic& traffic);

}  // namespace weft
