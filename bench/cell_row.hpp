// Fills rows and traffic lines from what was planned, measured and accounted. Only here are columns
// given values.
#pragma once

#include <vector>

#include "bench/runner.hpp"

namespace weft {

/// The columns that say which cell this is and where it ran.
Row identify(const RunContext& context, const Cell& cell);
void add_times(Row& row, const Measurement& measurement);

// Columns that every program has.
/// World, hosts, and how ranks are bound.
struct RunPlace {
  const Bootstrap& bootstrap;
  bool virtual_hosts = false;
  int cores = 1;  // usable on this host
  const std::string& binding;
  const std::string& binding_note;
};
void identify_hosts(Row& row, const RunPlace& place);
void add_noise(Row& row, const Noise& noise);
/// How many samples, and their times; no times without samples.
void add_statistics(Row& row, const Summary& summary);
/// NaN where either is not positive.
double gigabytes_per_second(double bytes, double us);

/// What overlapping hid and cost. Blank where a phase that they compare with was not measured.
struct OverlapFigures {
  double exposed_us = 0;        // overlap - the same program without payload
  double hidden_share = 0;      // 1 - exposed / comm alone; not clamped
  double bubble_us = 0;         // the program without payload - compute alone
  double compute_slowdown = 0;  // compute steps within overlap / alone
};
void add_overlap(Row& row, const OverlapFigures& figures);
/// Logical bytes; rates where the phase is communication alone.
void add_rates(Row& row, const RunContext& context, const IterationTraffic& traffic, double p50_us);
/// Gemm time of an iteration (max over ranks), its share of the row's median, its rate.
void add_gemm(Row& row, const GemmTime& gemm);

/// One line per dimension that communicates.
std::vector<TrafficLine> traffic_lines_of(const RunContext& context, const Cell& cell,
                                          const Execution& execution,
                                          const IterationTraffic& traffic);

}  // namespace weft
