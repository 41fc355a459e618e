#include "bench/google_benchmark.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <regex.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "patterns/error.hpp"

namespace weft {
namespace {

// Of "/iterations:1/manual_time", which the library adds to each name.
constexpr std::size_t kSuffixWidth = 25;

// Without the library's own lines about the machine: the provenance says that, and more.
class CellReporter final : public benchmark::ConsoleReporter {
 public:
  CellReporter() : ConsoleReporter(OO_Tabular) {}
  bool ReportContext(const Context& context) override {
    name_field_width_ = context.name_field_width - kSuffixWidth;
    printed_header_ = false;
    prev_counters_.clear();
    return true;
  }
  // Iterations and the kind of time are the same for all: without them a line fits more screens.
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> plain = runs;
    for (Run& run : plain) run.run_name.iterations = run.run_name.time_type = "";
    ConsoleReporter::ReportRuns(plain);
  }
};

class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

void set_counter(benchmark::State& state, const Row& row, const char* name,
                 std::string_view column) {
  const double value = row.number(column);
  if (!std::isnan(value)) state.counters[name] = value;
}

void report(benchmark::State& state, const CellResult& result) {
  if (!result.skip_reason.empty() || !result.verified || std::isnan(result.p50_us)) {
    const std::string why = result.row.get("skip_reason").empty()
                                ? "no valid sample"
                                : std::string(result.row.get("skip_reason"));
    state.SkipWithError(why.c_str());
    return;
  }
  for (auto _ : state) state.SetIterationTime(result.p50_us * 1e-6);
  set_counter(state, result.row, "n", "n");
  set_counter(state, result.row, "max_us", "t_max_us");
}

// Cells of a case stay together, in their order: an overlap is told from the phases before it.
std::vector<const Cell*> in_run_order(const Plan& plan, std::uint64_t seed) {
  std::vector<std::size_t> cases(plan.cases.size());
  std::iota(cases.begin(), cases.end(), std::size_t{0});
  if (seed != 0) std::ranges::shuffle(cases, std::mt19937_64(seed));
  std::vector<const Cell*> cells;
  for (std::size_t index : cases) {
    const auto first = static_cast<std::ptrdiff_t>(cells.size());
    for (const Cell& cell : plan.cells) {
      if (cell.case_index == index) cells.push_back(&cell);
    }
    std::stable_sort(cells.begin() + first, cells.end(),
                     [](const Cell* a, const Cell* b) { return a->phase < b->phase; });
  }
  return cells;
}

// The library's own filter, applied to the names as it makes them: POSIX extended, "-" excludes.
std::vector<const Cell*> selected(const Plan& plan) {
  std::string pattern = benchmark::GetBenchmarkFilter();
  if (pattern.empty() || pattern == "all") pattern = ".";
  const bool excludes = pattern.front() == '-';
  regex_t compiled;
  const char* text = pattern.c_str() + (excludes ? 1 : 0);
  const bool usable = regcomp(&compiled, text, REG_EXTENDED | REG_NOSUB) == 0;
  std::vector<const Cell*> cells;
  for (const Cell& cell : plan.cells) {
    const std::string name = cell.id + "/iterations:1/manual_time";
    const bool matches = usable && regexec(&compiled, name.c_str(), 0, nullptr, 0) == 0;
    if (matches != excludes) cells.push_back(&cell);
  }
  if (usable) regfree(&compiled);
  return cells;
}

}  // namespace

void initialise_benchmarks(const std::vector<std::string>& arguments, Rank rank) {
  static std::vector<std::string> kept;  // the library keeps pointers into its arguments
  kept = {"weft"};
  for (const std::string& argument : arguments) {
    if (rank == 0 || !argument.starts_with("--benchmark_out")) kept.push_back(argument);
  }
  std::vector<char*> argv;
  for (std::string& argument : kept) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
  if (argc > 1) fail_usage(fmt::format("Google Benchmark does not know the option '{}'", argv[1]));
}

bool only_lists(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [](const std::string& argument) {
    return argument.starts_with("--benchmark_list_tests") && !argument.ends_with("=false");
  });
}

void run_benchmarks(const Plan& plan, Runner& runner, Rank rank, std::uint64_t seed,
                    const std::function<void(const Cell&, int, int)>& progress) {
  int index = 0;
  const std::vector<const Cell*> cells = in_run_order(plan, seed);
  runner.select(selected(plan));
  const int count = static_cast<int>(cells.size());
  for (const Cell* cell : cells) {
    benchmark::RegisterBenchmark(
        cell->id.c_str(),
        [&runner, cell, &progress, &index, count](benchmark::State& state) {
          progress(*cell, ++index, count);
          report(state, runner.run(*cell));
        })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  CellReporter console;
  SilentReporter silent;
  benchmark::RunSpecifiedBenchmarks(rank == 0 ? static_cast<benchmark::BenchmarkReporter*>(&console)
                                              : &silent);
  benchmark::Shutdown();
}

}  // namespace weft
