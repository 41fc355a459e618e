#include "bench/run_frame.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "bench/accounting.hpp"
#include "bench/launch.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

constexpr std::string_view kNoFile = "none";

std::string csv_path(const Options& options, std::string_view program) {
  if (options.csv == kNoFile) return "";
  if (!options.csv.empty()) return options.csv;
  return fmt::format("results/weft-{}.csv",
                     program);  // measured rows are never only on a screen
}

std::string status_path(const OutputPaths& paths) {
  const std::string& beside = paths.csv.empty() ? paths.json : paths.csv;
  return beside.empty() ? "" : beside + ".status.json";
}

}  // namespace

RunFrame::RunFrame(const Options& options, Bootstrap& bootstrap)
    : options_(options),
      bootstrap_(bootstrap),
      last_word_(bootstrap),
      launch_id_(bootstrap.all_gather(make_launch_id()).front()) {}

Watchdog RunFrame::watch(double seconds, std::function<std::string()> activity) {
  return Watchdog(
      seconds, [this](double waited) { last_word_.timed_out(waited); },
      [this, activity](int signal) { last_word_.interrupted(signal, activity()); },
      [this, activity](std::uint64_t beats) { last_word_.pulse(beats, activity()); });
}

RunFacts RunFrame::gather_facts(int threads_per_rank) {
  RunFacts facts;
  facts.command_line = options_.command_line;
  facts.launch_id = launch_id_;
  facts.mpi_library = bootstrap_.library();
  facts.inventory = gather_inventory(bootstrap_);
  facts.cpu_limits = gather_cpu_limits(bootstrap_);
  facts.hosts = bootstrap_.hosts();
  facts.timer_cost_ns = measure_timer_cost();
  facts.threads_per_rank = threads_per_rank;
  facts.copy_limit_GBps = measure_copy_limit(bootstrap_, facts.inventory.front().last_level_cache);
  return facts;
}

void RunFrame::open_files(const OutputPaths& paths, const RunFacts& facts) {
  together(bootstrap_, [&] {
    if (bootstrap_.rank() == 0) {
      if (options_.csv.empty()) {
        std::error_code ignored;  // the writer reports what it cannot open
        std::filesystem::create_directories("results", ignored);
      }
      writer_ = std::make_unique<RowWriter>(paths, launch_id_, provenance_json(facts));
      writer_->on_row([this] { last_word_.nothing_after_it(); },
                      [this](int rows) { last_word_.set_rows(rows); });
    }
    last_word_.open(status_path(paths), launch_id_);
  });
}

ExitCode RunFrame::to_the_end(const std::function<Ending()>& run) {
  try {
    const Ending ending = run();
    last_word_.close(ending.code, ending.why);
    return ending.code;
  } catch (const AgreedError& error) {
    last_word_.close(error.code(), error.what());
    print_error(error.what());
    return error.code();
  } catch (const Error& error) {
    // About a peer that does not answer, most likely: the others cannot be told.
    if (error.code() == ExitCode::timed_out) last_word_.timed_out(error.what());
    last_word_.close(error.code(), error.what());
    leave_alone(launcher_rank(), error.code(), fmt::format("weft: error: {}", error.what()));
  }
}

OutputPaths output_paths(const Options& options, std::string_view program) {
  return {csv_path(options, program),
          options.json,
          options.flows,
          options.queue_pairs_file,
          options.samples,
          options.traffic,
          options.trace};
}

std::vector<std::string> named_files(const OutputPaths& paths) {
  std::vector<std::string> files;
  for (const std::string& path : {paths.csv, paths.json, paths.flows, paths.queue_pairs,
                                  paths.samples, paths.traffic, paths.trace}) {
    if (!path.empty()) files.push_back(path);
  }
  return files;
}

void warn_of_binding(const CpuShare& cpus) {
  if (cpus.note.empty() || cpus.note.starts_with("ranks are not")) return;
  fmt::print(stderr,
             "weft: warning: {}; times will say little of the fabric. Bind each rank to cores of "
             "its own (mpiexec -bind-to core, srun --cpu-bind=cores)\n",
             cpus.note);
}

void print_error(std::string_view what) {
  if (launcher_rank() == 0) fmt::print(stderr, "weft: error: {}\n", what);
}

int report_errors(const std::function<int(bool first)>& run) {
  try {
    return run(launcher_rank() == 0);
  } catch (const Error& error) {
    print_error(error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace weft
