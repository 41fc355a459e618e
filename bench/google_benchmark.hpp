// The one place where Google Benchmark is used: every cell is a registered benchmark with manual
// time, so its filter, list, repetitions, console and JSON work on ours. The stopping rule stays
// ours: a benchmark runs once, and the time it reports is the cell's median.
#pragma once

#include "bench/runner.hpp"

namespace weft {

/// Collective: every rank runs the same cells in the same order. Rank 0 reports to the console and
/// to --benchmark_out. Throws Error(usage) for a --benchmark_ option that the library does not
/// know. `progress` is told before each cell.
void run_benchmarks(const Plan& plan, Runner& runner,
                    const std::vector<std::string>& benchmark_arguments, Rank rank,
                    const std::function<void(const Cell&, int index, int count)>& progress);

}  // namespace weft
