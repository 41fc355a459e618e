#include "bench/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "bench/google_benchmark.hpp"
#include "bench/launch.hpp"
#include "bench/options.hpp"
#include "bench/plan.hpp"
#include "bench/ranks.hpp"
#include "bench/run_frame.hpp"
#include "bench/runner.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

// Everything of one run that needs MPI. Destroyed before MPI ends.
class Run {
 public:
  Run(const Options& options, const Pattern& pattern, Bootstrap& bootstrap)
      : options_(options),
        pattern_(pattern),
        bootstrap_(bootstrap),
        frame_(options, bootstrap),
        backend_(make_host_backend()),
        watchdog_(frame_.watch(options.timeout, [this] { return activity(); })) {}

  ExitCode go() {
    return frame_.to_the_end([this] {
      prepare();
      measure_all();
      return verdict();
    });
  }

 private:
  std::string activity() const { return runner_ ? runner_->activity() : "starting"; }

  void prepare() {
    together(bootstrap_, [&] {
      check_launch(bootstrap_.size(), ranks_needed(options_, pattern_));
      initialise_benchmarks(options_.benchmark_arguments, bootstrap_.rank());
      const TransportChoice choice = choose_transports(options_, bootstrap_);
      missing_ = choice.missing;
      plan_ = make_plan(options_, pattern_, bootstrap_.size(), choice.transports);
    });
    if (!missing_.empty()) print_error(missing_);
    cpus_ = share_cpus(bootstrap_);
    threads_ = options_.threads > 0 ? options_.threads : cpus_.threads_per_rank;
    backend_->set_threads(threads_);
    open_files();
  }

  void open_files() {
    RunFacts facts = frame_.gather_facts(threads_);
    facts.kernels = backend_->description();
    last_level_cache_ = facts.inventory.front().last_level_caches;
    copy_limit_ = facts.copy_limit_GBps;
    links_ = link_rates(options_.link_rate_gbps, facts.inventory, copy_limit_);
    paths_ = output_paths(options_, pattern_.name);
    frame_.open_files(paths_, facts);
  }

  void measure_all() {
    runner_ = std::make_unique<Runner>(RunContext{
        options_, plan_, bootstrap_, *backend_, frame_.writer(), frame_.launch_id(), copy_limit_,
        threads_, cpus_.cores, cpus_.oversubscribed, cpus_.binding, cpus_.note,
        bootstrap_.max(cpus_.cores_per_rank < threads_ + 1) > 0, last_level_cache_, links_});
    runner_->set_watchdog(&watchdog_);
    if (bootstrap_.rank() == 0) warn_of_binding(cpus_);
    const bool show = bootstrap_.rank() == 0 && isatty(STDERR_FILENO) != 0;
    if (only_lists(options_.benchmark_arguments) && bootstrap_.rank() != 0) return;
    const bool lists = only_lists(options_.benchmark_arguments);
    run_benchmarks(plan_, *runner_, bootstrap_.rank(),
                   lists ? 0 : std::hash<std::string>{}(frame_.launch_id()) | 1,
                   [show](const Cell& cell, int index, int count) {
                     if (show) fmt::print(stderr, "[{}/{}] {}\n", index, count, cell.id);
                   });
    if (!lists) runner_->close();
  }

  Ending verdict() {
    if (bootstrap_.rank() == 0) print_report();
    if (!runner_->all_verified()) return {ExitCode::failed, "a verification failed"};
    if (runner_->measured() == 0 && !runner_->rows().empty()) {
      const std::string why =
          "no cell could run: " + std::string(runner_->rows().front().get("skip_reason"));
      print_error(why);
      return {ExitCode::usage, why};
    }
    return missing_.empty() ? Ending{} : Ending{ExitCode::usage, missing_};
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
  RunFrame frame_;
  std::unique_ptr<KernelBackend> backend_;
  Plan plan_;
  std::string missing_;  // transports that were asked for and cannot run
  CpuShare cpus_;
  int threads_ = 1;
  double copy_limit_ = 0;
  Bytes last_level_cache_ = 0;
  LinkRates links_;
  OutputPaths paths_;
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

}  // namespace

int run_program(int argc, char** argv, std::string_view pattern_name) {
  return report_errors([&](bool first) {
    const Pattern& pattern = find_pattern(pattern_name);
    Options options;
    if (!parse_options(argc, argv, pattern, options, first)) return 0;
    apply_scene(options, pattern);
    if (print_plain(options, pattern, first)) return 0;
    return static_cast<int>(run_on_ranks(
        options, [&](Bootstrap& bootstrap) { return Run(options, pattern, bootstrap).go(); }));
  });
}

}  // namespace weft
