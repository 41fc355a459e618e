// Options that only some patterns understand, and the text around the list of options.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "bench/option_groups.hpp"
#include "bench/option_values.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kColumn = "tp-allgather", kRow = "row-allreduce",
                           kPipeline = "pp-sendrecv", kData = "dp-gradsync",
                           kExperts = "moe-alltoall";

struct PatternOption {
  std::string_view name;
  std::vector<std::string_view> patterns;
  void (*add)(OptionGroup& group, const std::string& name, PatternOptions& shape);
};

template <class T>
OptionGroup::Setter choice(T& target, const std::string& name,
                           std::initializer_list<std::pair<std::string_view, T>> choices) {
  return [&target, name, choices = std::vector(choices)](const std::string& text) {
    std::vector<std::string_view> known;
    for (const auto& [key, value] : choices) {
      if (key == trimmed(text)) {
        target = value;
        return;
      }
      known.push_back(key);
    }
    fail_choice(text, name, known);
  };
}

void add_grad_dtype(OptionGroup& group, const std::string& name, PatternOptions& shape) {
  group.value(name, "TYPE", "storage of gradients: f32, bf16, f16 (default f32)",
              [&shape, name](const std::string& text) {
                const std::optional<DType> dtype = parse_dtype(text);
                if (!dtype) fail_choice(text, name, {"f32", "bf16", "f16"});
                shape.grad_dtype = *dtype;
              });
}

const std::vector<PatternOption>& pattern_options() {
  static const std::vector<PatternOption> all{
      {"--sequence-parallel",
       {kColumn, kRow, kPipeline},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.flag(name, "shard activations along the sequence", shape.sequence_parallel);
       }},
      {"--keep-gathered",
       {kColumn},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.flag(name, "keep the gathered input for the backward pass\n(default: gather again)",
                    shape.keep_gathered);
       }},
      {"--schedule",
       {kPipeline},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.value(
             name, "NAME", "gpipe or 1f1b (default 1f1b)",
             choice(shape.schedule, name,
                    {{"gpipe", PipelineSchedule::gpipe}, {"1f1b", PipelineSchedule::one_f_one_b}}));
       }},
      {"--bucket-mib",
       {kData},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.number(name, "MIB", "gradients of one AllReduce, MiB (default 25)", shape.bucket_mib,
                      1e-6, 1e6);
       }},
      {"--zero",
       {kData},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.flag(name, "shard the optimizer: ReduceScatter, then AllGather", shape.zero);
       }},
      {"--optimizer",
       {kData},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.value(
             name, "NAME", "sgd or adam (default sgd)",
             choice(shape.optimizer, name, {{"sgd", Optimizer::sgd}, {"adam", Optimizer::adam}}));
       }},
      {"--grad-dtype", {kData}, add_grad_dtype},
      {"--experts",
       {kExperts},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.count(name, "experts in all (default: the model's)", shape.experts);
       }},
      {"--top-k",
       {kExperts},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.count(name, "experts a token goes to (default: the model's)", shape.top_k);
       }},
      {"--skew",
       {kExperts},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.number(name, "X", "expert j is chosen like 1/(1+j)^X (default 0: evenly)",
                      shape.skew, 0, 100);
       }},
      {"--token-matrix",
       {kExperts},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.value(
             name, "FILE",
             "CSV of N lines of N token counts, row sends to\ncolumn (default: the router decides)",
             [&shape](const std::string& path) { shape.token_matrix = read_token_matrix(path); });
       }},
      {"--no-bias",
       {kColumn, kRow, kPipeline, kData},
       [](OptionGroup& group, const std::string& name, PatternOptions& shape) {
         group.flag(name, "linear layers without bias", shape.bias, false);
       }},
  };
  return all;
}

bool offers(const PatternOption& option, std::string_view pattern) {
  return std::find(option.patterns.begin(), option.patterns.end(), pattern) !=
         option.patterns.end();
}

void add_show_plan(CLI::App& app, const std::string& title, Options& options) {
  const auto set = [&options](const std::vector<std::string>& texts) {
    options.show_plan = true;
    const std::string form = texts.empty() || texts.back().empty() ? "text" : texts.back();
    options.show_plan_json =
        parse_choice<bool>(form, "--show-plan", {{"text", false}, {"json", true}});
  };
  app.add_option_function<std::vector<std::string>>("--show-plan", set,
                                                    "print what each rank would do, run nothing")
      ->expected(0, 1)
      ->type_name("[json]")
      ->group(title);
}

}  // namespace

void add_pattern_options(CLI::App& app, const Pattern& pattern, Options& options) {
  OptionGroup group(app, fmt::format("Options of {}", pattern.name));
  for (const PatternOption& option : pattern_options()) {
    if (offers(option, pattern.name)) option.add(group, std::string(option.name), options.pattern);
  }
}

std::vector<std::string> pattern_options_of(const Pattern& pattern) {
  std::vector<std::string> names;
  for (const PatternOption& option : pattern_options()) {
    if (offers(option, pattern.name)) names.emplace_back(option.name);
  }
  return names;
}

std::string programs_with(std::string_view name) {
  std::string programs;
  for (const PatternOption& option : pattern_options()) {
    if (option.name != name) continue;
    for (std::string_view pattern : option.patterns) {
      programs += programs.empty() ? "weft-" : ", weft-";
      programs += pattern;
    }
  }
  return programs;
}

void add_transport_list(OptionGroup& group, Options& options) {
  group.flag("--list-transports", "transports, their algorithms, and why one cannot be used here",
             options.list_transports);
}

void add_general_options(CLI::App& app, const std::string& title) {
  app.set_config("--config", "", "options as 'name = value' lines (TOML); the command line wins")
      ->type_name("FILE")
      ->group(title);
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_help_flag("-h,--help", "this text")->group(title);
  app.set_version_flag("--version", fmt::format("weft {}", WEFT_VERSION), "version")->group(title);
}

void add_information_options(CLI::App& app, Options& options) {
  const std::string title = "Information and configuration";
  OptionGroup group(app, title);
  add_transport_list(group, options);
  group.flag("--list-models", "model shapes and their parameters", options.list_models);
  add_show_plan(app, title, options);
  add_general_options(app, title);
}

std::string help_footer(const Pattern& pattern) {
  return fmt::format(
      R"(Lists are comma separated and may repeat: --transport mpi,shm. Options --benchmark_* go to
Google Benchmark.

Sizes:  4096 is bytes; K, M, G, T (also KiB, MiB, ...) are powers of 1024; KB, MB, GB, TB are
        powers of 1000; 1e6 is allowed. A size is what a rank contributes to one operation; it must
        be a multiple of the element size.
Series: 4K:64M:x4 is 4K, 16K, ... while not above 64M; 64M:70M:+2M goes in steps of 2M; 8:64
        doubles. The end is measured if the series meets it: 3:29:x3 is 3, 9, 27.
Units:  times in us, rates in GB/s (1 GB = 1e9 bytes), link rates in Gbit/s.
Exit:   0 fine, 1 verification or threshold failed, 2 wrong usage or environment, 3 inconclusive,
        4 timed out.

Examples:
  mpiexec -n 4 weft-{0} --model tiny
  mpiexec -n 4 weft-{0} --transport shm,mpi --sizes 4K:64M:x4 --csv sweep.csv)",
      pattern.name);
}

}  // namespace weft
