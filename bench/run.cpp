#include "bench/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "bench/affinity.hpp"
#include "bench/google_benchmark.hpp"
#include "bench/last_word.hpp"
#include "bench/launch.hpp"
#include "bench/options.hpp"
#include "bench/plan.hpp"
#include "bench/provenance.hpp"
#include "bench/runner.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

constexpr std::string_view kNoFile = "none";

std::string csv_path(const Options& options, const Pattern& pattern) {
  if (options.csv == kNoFile) return "";
  if (!options.csv.empty()) return options.csv;
  return fmt::format("results/weft-{}.csv",
                     pattern.name);  // measured rows are never only on a screen
}

// A default folder is made; a folder that the user names must exist, so that a slip of the pen is
// seen.
OutputPaths output_paths(const Options& options, const Pattern& pattern) {
  OutputPaths paths{csv_path(options, pattern),
                    options.json,
                    options.flows,
                    options.samples,
                    options.traffic,
                    options.trace};
  if (options.csv.empty()) {
    std::error_code ignored;  // the writer reports what it cannot open
    std::filesystem::create_directories("results", ignored);
  }
  return paths;
}

std::string status_path(const Options& options, const Pattern& pattern) {
  const std::string csv = csv_path(options, pattern);
  const std::string& beside = csv.empty() ? options.json : csv;
  return beside.empty() ? "" : beside + ".status.json";
}

std::vector<std::string> named_files(const OutputPaths& paths) {
  std::vector<std::string> files;
  for (const std::string& path :
       {paths.csv, paths.json, paths.flows, paths.samples, paths.traffic, paths.trace}) {
    if (!path.empty()) files.push_back(path);
  }
  return files;
}

// Everything of one run that needs MPI. Destroyed before MPI ends.
class Run {
 public:
  Run(const Options& options, const Pattern& pattern, Bootstrap& bootstrap)
      : options_(options),
        pattern_(pattern),
        bootstrap_(bootstrap),
        last_word_(bootstrap),
        launch_id_(bootstrap.all_gather(make_launch_id()).front()),
        backend_(make_host_backend()),
        watchdog_(
            options.timeout, [this](double seconds) { expire(seconds, ""); },
            [this](int signal) { last_word_.interrupted(signal, activity()); },
            [this](std::uint64_t beats) { last_word_.pulse(beats, activity()); }) {}

  ExitCode go() {
    together(bootstrap_, [&] {
      check_launch(bootstrap_.size(), ranks_needed(options_, pattern_));
      initialise_benchmarks(options_.benchmark_arguments, bootstrap_.rank());
      plan_ =
          make_plan(options_, pattern_, bootstrap_.size(), usable_transports(options_, bootstrap_));
    });
    cpus_ = share_cpus(bootstrap_);
    const int threads = options_.threads > 0 ? options_.threads : cpus_.threads_per_rank;
    backend_->set_threads(threads);
    open_files(threads);
    measure_all(threads);
    return verdict();
  }

  /// Rank 0's files get their last word, also when the run ends badly.
  void close(ExitCode code, const std::string& why) { last_word_.close(code, why); }

  /// The others wait, or this rank has waited in vain (`cause`).
  [[noreturn]] void expire(double seconds, const std::string& cause) {
    last_word_.timed_out(seconds, cause);
  }

  const std::string& why() const { return why_; }
  std::string activity() const { return runner_ ? runner_->activity() : "starting"; }

 private:
  void open_files(int threads) {
    RunFacts facts;
    facts.command_line = options_.command_line;
    facts.launch_id = launch_id_;
    facts.kernels = backend_->description();
    facts.mpi_library = bootstrap_.library();
    facts.inventory = gather_inventory(bootstrap_);
    facts.cpu_limits = gather_cpu_limits(bootstrap_);
    facts.hosts = bootstrap_.hosts();
    facts.timer_cost_ns = measure_timer_cost();
    facts.threads_per_rank = threads;
    last_level_cache_ = facts.inventory.front().last_level_caches;
    copy_limit_ = measure_copy_limit(bootstrap_, facts.inventory.front().last_level_cache);
    facts.copy_limit_GBps = copy_limit_;
    links_ = link_rates(options_.link_rate_gbps, facts.inventory, copy_limit_);
    together(bootstrap_, [&] {
      if (bootstrap_.rank() == 0) {
        paths_ = output_paths(options_, pattern_);
        writer_ = std::make_unique<RowWriter>(paths_, launch_id_, provenance_json(facts));
        writer_->on_row([this] { last_word_.nothing_after_it(); },
                        [this](int rows) { last_word_.set_rows(rows); });
      }
      last_word_.open(status_path(options_, pattern_), launch_id_);
    });
  }

  void measure_all(int threads) {
    runner_ = std::make_unique<Runner>(RunContext{
        options_, plan_, bootstrap_, *backend_, writer_.get(), launch_id_, copy_limit_, threads,
        cpus_.cores, cpus_.oversubscribed, cpus_.binding, cpus_.note,
        bootstrap_.max(cpus_.cores_per_rank < threads + 1) > 0, last_level_cache_, links_});
    runner_->set_watchdog(&watchdog_);
    warn_of_binding();
    const bool show = bootstrap_.rank() == 0 && isatty(STDERR_FILENO) != 0;
    if (only_lists(options_.benchmark_arguments) && bootstrap_.rank() != 0) return;
    const bool lists = only_lists(options_.benchmark_arguments);
    run_benchmarks(plan_, *runner_, bootstrap_.rank(),
                   lists ? 0 : std::hash<std::string>{}(launch_id_) | 1,
                   [show](const Cell& cell, int index, int count) {
                     if (show) fmt::print(stderr, "[{}/{}] {}\n", index, count, cell.id);
                   });
  }

  // Ranks that may move are said in the rows only: that is how every launcher starts them.
  void warn_of_binding() const {
    if (bootstrap_.rank() != 0 || cpus_.note.empty() || cpus_.note.starts_with("ranks are not")) {
      return;
    }
    fmt::print(stderr,
               "weft: warning: {}; times will say little of the fabric. Bind each rank to cores of "
               "its own (mpiexec -bind-to core, srun --cpu-bind=cores)\n",
               cpus_.note);
  }

  ExitCode verdict() {
    if (bootstrap_.rank() == 0) print_report();
    if (!runner_->all_verified()) {
      why_ = "a verification failed";
      return ExitCode::failed;
    }
    if (runner_->measured() == 0 && !runner_->rows().empty()) {
      why_ = "no cell could run: " + std::string(runner_->rows().front().get("skip_reason"));
      if (bootstrap_.rank() == 0) fmt::print(stderr, "weft: error: {}\n", why_);
      return ExitCode::usage;
    }
    return ExitCode::ok;
  }

  void print_report() {
    if (runner_->rows().empty())
      return;  // --benchmark_list_tests, or a filter that matches nothing
    if (!options_.scene.empty()) {
      const Scene& scene = find_scene(options_.scene, pattern_.name);
      fmt::print("\n{}\n", scene.text(plan_.model, plan_.layout, plan_.cases.front().options));
    }
    fmt::print("\n{}\n{}", traffic_sheet(runner_->traffic_lines(), options_.mtu),
               summary(runner_->rows(), named_files(paths_)));
    if (runner_->not_compared() > 0) {
      fmt::print(
          "Results of {} tensors (all ranks) cost the reference too much and were not compared; "
          "their exchanges were "
          "checked. A smaller --model, --layers or --seq has them compared.\n",
          runner_->not_compared());
    }
    if (bootstrap_.size() == 1) {
      fmt::print("One rank only: nothing was sent. Start more with: mpiexec -n 2 weft-{} ...\n",
                 pattern_.name);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  const Pattern& pattern_;
  Bootstrap& bootstrap_;
  LastWord last_word_;
  std::string launch_id_, why_;
  std::unique_ptr<KernelBackend> backend_;
  Plan plan_;
  CpuShare cpus_;
  double copy_limit_ = 0;
  Bytes last_level_cache_ = 0;
  LinkRates links_;
  OutputPaths paths_;
  std::unique_ptr<RowWriter> writer_;
  std::unique_ptr<Runner> runner_;
  Watchdog watchdog_;  // last: it looks at all the others
};

void apply_scene(Options& options, const Pattern& pattern) {
  if (options.scene.empty()) return;
  const Scene& scene = find_scene(options.scene, pattern.name);
  scene.apply(options.pattern, options.layout);
  if (options.model.empty()) options.model = scene.model;
}

// What needs no ranks: said once, by the first process.
bool print_plain(const Options& options, const Pattern& pattern, bool first) {
  if (options.list_models) {
    if (first) fmt::print("{}", list_models_text());
  } else if (options.show_plan) {
    const std::string text = show_plan_text(options, pattern, options.show_plan_json);
    if (first) fmt::print("{}\n", text);
  }
  return options.list_models || options.show_plan;
}

ExitCode run_with_ranks(const Options& options, const Pattern& pattern) {
  const auto bootstrap = make_mpi_bootstrap(options.ranks_per_host);
  if (options.list_transports) {
    const std::string text = list_transports_text(*bootstrap);
    if (bootstrap->rank() == 0) fmt::print("{}", text);
    return ExitCode::ok;
  }
  Run run(options, pattern, *bootstrap);
  try {
    const ExitCode code = run.go();
    run.close(code, run.why());
    return code;
  } catch (const AgreedError& error) {
    run.close(error.code(), error.what());
    if (launcher_rank() == 0) fmt::print(stderr, "weft: error: {}\n", error.what());
    return error.code();
  } catch (const Error& error) {
    // About a peer that does not answer, most likely: the others cannot be told.
    if (error.code() == ExitCode::timed_out) run.expire(options.timeout, error.what());
    run.close(error.code(), error.what());
    leave_alone(launcher_rank(), error.code(), error.what());
  }
}

}  // namespace

int run_program(int argc, char** argv, std::string_view pattern_name) {
  const Rank rank = launcher_rank();
  try {
    const Pattern& pattern = find_pattern(pattern_name);
    Options options;
    if (!parse_options(argc, argv, pattern, options, rank == 0)) return 0;
    apply_scene(options, pattern);
    if (print_plain(options, pattern, rank == 0)) return 0;
    return static_cast<int>(run_with_ranks(options, pattern));
  } catch (const Error& error) {
    if (rank == 0) fmt::print(stderr, "weft: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace weft
