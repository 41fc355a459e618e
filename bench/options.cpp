#include "bench/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "bench/option_groups.hpp"
#include "bench/option_values.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kHelpColumn = 30;

/// --benchmark_* go to Google Benchmark unread; returns the others, last first, as CLI11 wants
/// them.
std::vector<std::string> take_benchmark_arguments(int argc, char** argv, Options& options) {
  std::vector<std::string> others;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    (argument.starts_with("--benchmark_") ? options.benchmark_arguments : others)
        .push_back(argument);
  }
  std::reverse(others.begin(), others.end());
  return others;
}

bool has(const std::vector<std::string>& arguments, std::string_view a, std::string_view b) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const std::string& text) { return text == a || text == b; });
}

[[noreturn]] void fail_unknown(const CLI::App& app, std::string_view program,
                               const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  if (!name.starts_with('-')) {
    fail_usage(fmt::format("'{}' stands where an option is expected; see weft-{} --help", argument,
                           program));
  }
  if (const std::string others = programs_with(name); !others.empty()) {
    fail_usage(
        fmt::format("{} is an option of {}, not of weft-{}; see --help", name, others, program));
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) known.push_back(option->get_name());
  }
  const std::string near = nearest(name, known);
  fail_usage(fmt::format("unknown option {}{}; see weft-{} --help", name,
                         near.empty() ? "" : fmt::format(", did you mean {}?", near), program));
}

/// A flag whose value CLI11 could not take for true or false.
[[noreturn]] void fail_flag(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() != 0 || option->count() == 0) continue;
    const std::string& text = option->results().back();
    if (text != "true" && text != "false") {
      fail_usage(fmt::format("{}: '{}' is neither true nor false; give it without a value",
                             option->get_name(), text));
    }
  }
  fail_usage("a flag has a value that is neither true nor false; give it without a value");
}

/// What CLI11 itself finds, in our words.
[[noreturn]] void fail_parse(const CLI::ParseError& error, const std::string& config,
                             std::string_view program) {
  std::string what = error.what();
  constexpr std::string_view kUnknownKey = "INI was not able to parse ";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.ends_with("missing")) {
    what = fmt::format("{} lacks its value", what.substr(0, what.find(':')));
  } else if (what.starts_with(kUnknownKey)) {
    what = fmt::format("unknown key '{}'", what.substr(kUnknownKey.size()));
  } else if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
    fail_usage(
        fmt::format("--config: cannot read {}; name a file of 'option = value' lines", config));
  }
  const bool in_file = dynamic_cast<const CLI::ConfigError*>(&error) != nullptr;
  fail_usage(fmt::format("{}{}; see weft-{} --help",
                         in_file ? fmt::format("--config {}: ", config) : "", what, program));
}

std::string config_of(const CLI::App& app) {
  const CLI::Option* option = app.get_config_ptr();
  return option == nullptr || option->count() == 0 ? "" : option->results().back();
}

void run_parser(CLI::App& app, std::vector<std::string> arguments, std::string_view program) {
  try {
    app.allow_extras();
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    fail_parse(error, config_of(app), program);
  } catch (const std::invalid_argument&) {
    fail_flag(app);
  } catch (const std::out_of_range&) {
    fail_flag(app);
  }
  if (const auto extras = app.remaining(); !extras.empty())
    fail_unknown(app, program, extras.front());
}

bool given(const CLI::App& app, const std::string& option) {
  const CLI::Option* found = app.get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

/// A sweep has no model: options that shape one would be ignored in silence.
void check_sweep(const CLI::App& app, const Pattern& pattern, const Options& options) {
  if (options.sizes.empty()) return;
  std::vector<std::string> shaping{"--model",  "--seq",       "--micro-batch", "--micro-batches",
                                   "--layers", "--direction", "--scene"};
  const std::vector<std::string> own = pattern_options_of(pattern);
  shaping.insert(shaping.end(), own.begin(), own.end());
  for (const std::string& option : shaping) {
    if (given(app, option)) {
      fail_usage(fmt::format(
          "--sizes sweeps messages without a model, so {} means nothing with it; leave one out",
          option));
    }
  }
  for (Phase phase : options.phases) {
    if (phase == Phase::comm) continue;
    fail_usage(fmt::format(
        "--sizes sweeps communication alone: --phase {} needs a model; leave one of them out",
        to_string(phase)));
  }
}

void check_times(const CLI::App& app, Options& options) {
  if (options.min_time <= options.max_time) return;
  if (given(app, "--max-time")) {
    if (given(app, "--min-time")) {
      fail_usage(fmt::format("--min-time {} is above --max-time {}; swap or drop one",
                             options.min_time, options.max_time));
    }
    options.min_time = options.max_time;  // a short run was asked for
  } else {
    options.max_time = options.min_time;
  }
}

std::vector<std::string> default_transports() { return {"mpi", "shm"}; }

void fill_defaults(const CLI::App& app, Options& options) {
  for (const char* option : {"--tp", "--cp", "--ep", "--dp", "--pp"}) {
    options.layout_given = options.layout_given || given(app, option);
  }
  if (!options.transports_given) options.transports = default_transports();
  if (options.phases.empty()) {
    options.phases = options.sizes.empty()
                         ? std::vector{Phase::compute, Phase::comm, Phase::serial, Phase::overlap}
                         : std::vector{Phase::comm};
  }
}

void add_pattern_program(CLI::App& app, const Pattern& pattern, Options& options) {
  add_layout_options(app, options);
  add_shape_options(app, pattern, options);
  add_pattern_options(app, pattern, options);
  add_transport_options(app, options);
  add_verbs_options(app, options);
  add_measure_options(app, options);
  add_output_options(app, pattern, options);
  add_traffic_options(app, options);
  add_information_options(app, options);
}

void set_up(CLI::App& app, const CommandLine& command_line) {
  app.name(fmt::format("weft-{}", command_line.program));
  app.description(std::string(command_line.summary));
  app.get_formatter()->column_width(kHelpColumn);
  app.get_formatter()->label("OPTIONS", "options");
  command_line.add_options(app);
  app.footer(command_line.footer);
}

void print(bool output, const std::string& text) {
  if (output) fmt::print("{}\n", text);
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::compute:
      return "compute";
    case Phase::comm:
      return "comm";
    case Phase::serial:
      return "serial";
    case Phase::overlap:
      return "overlap";
  }
  return "?";
}

namespace {

/// False where help or version was asked for.
bool parse_with(CLI::App& app, const CommandLine& command_line, std::vector<std::string> arguments,
                bool output) {
  set_up(app, command_line);
  if (has(arguments, "--help", "-h")) {  // also where another option is wrong
    print(output, app.help());
    return false;
  }
  try {
    run_parser(app, std::move(arguments), command_line.program);
  } catch (const CLI::CallForVersion& version) {
    print(output, version.what());
    return false;
  }
  return true;
}

}  // namespace

bool parse_command_line(int argc, char** argv, const CommandLine& command_line, Options& options,
                        bool output) {
  CLI::App app;
  options.command_line.assign(argv, argv + argc);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::reverse(arguments.begin(), arguments.end());
  if (!parse_with(app, command_line, std::move(arguments), output)) return false;
  check_times(app, options);
  if (!options.transports_given) options.transports = default_transports();
  return true;
}

bool parse_options(int argc, char** argv, const Pattern& pattern, Options& options, bool output) {
  CLI::App app;
  const CommandLine command_line{
      pattern.name, pattern.summary,
      [&](CLI::App& added) { add_pattern_program(added, pattern, options); }, help_footer(pattern)};
  options.command_line.assign(argv, argv + argc);
  if (!parse_with(app, command_line, take_benchmark_arguments(argc, argv, options), output)) {
    return false;
  }
  check_times(app, options);
  check_sweep(app, pattern, options);
  fill_defaults(app, options);
  return true;
}

}  // namespace weft
