// The one place where Google Benchmark is used: every cell is a registered benchmark with manual
// time, so its filter, list, repetitions, console and JSON work on ours. The stopping rule stays
// ours: a benchmark runs once, and the time it reports is the cell's median.
#pragma once

#include "bench/runner.hpp"

namespace weft {

/// Gives the library its --benchmark_ options. Ranks other than 0 write no file. Throws
/// Error(usage) for an option that the library does not know.
void initialise_benchmarks(const std::vector<std::string>& arguments, Rank rank);

/// True if the options ask for a list of the cells: rank 0 alone shall call run_benchmarks() then,
/// and nothing runs.
bool only_lists(const std::vector<std::string>& arguments);

/// Collective: every rank runs the same cells in the same order: cases in an order shuffled by
/// `seed` (the same on all ranks), so that what changes with time does not follow the size; 0: in
/// plan order. Rank 0 reports to the console and to --benchmark_out. `progress` is told before each
/// cell: the cell, its number from 1, how many there are.
void run_benchmarks(const Plan& plan, Runner& runner, Rank rank, std::uint64_t seed,
                    const std::function<void(const Cell&, int, int)>& progress);

}  // namespace weft
