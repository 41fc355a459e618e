#include "bench/option_groups.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <limits>
#include <utility>

#include "bench/option_values.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr double kLongest = 1e6;  // seconds: eleven days
constexpr int kMostPaths = 4096;
constexpr int kMostQueuePairs = 1024;
constexpr double kSlowestLink = 1e-6;  // Gbit/s

void parse_directions(const std::vector<std::string>& texts, const Pattern& pattern,
                      Options& options) {
  std::vector<std::string_view> known;
  for (Direction direction : pattern.directions) known.push_back(to_string(direction));
  for (const std::string& name : parse_names(texts, "--direction")) {
    bool found = false;
    for (Direction direction : pattern.directions) {
      if (name != to_string(direction)) continue;
      options.directions.push_back(direction);
      found = true;
    }
    if (!found) fail_choice(name, "--direction", known);
  }
}

void parse_dtypes(const std::vector<std::string>& texts, Options& options) {
  options.dtypes.clear();
  for (const std::string& name : parse_names(texts, "--dtype")) {
    const std::optional<DType> dtype = parse_dtype(name);
    if (!dtype) fail_choice(name, "--dtype", {"f32", "bf16", "f16"});
    options.dtypes.push_back(*dtype);
  }
}

void parse_phases(const std::vector<std::string>& texts, Options& options) {
  for (const std::string& name : parse_names(texts, "--phase")) {
    options.phases.push_back(parse_choice<Phase>(name, "--phase",
                                                 {{"compute", Phase::compute},
                                                  {"comm", Phase::comm},
                                                  {"serial", Phase::serial},
                                                  {"overlap", Phase::overlap}}));
  }
}

Bytes elephant_size(const std::string& text) {
  Bytes size = 0;
  try {
    size = parse_size(text);
  } catch (const Error& error) {
    fail_usage(fmt::format("--elephant: {}", error.what()));
  }
  if (size < 1) fail_usage("--elephant must be 1 byte or more; 0 would make every flow one");
  return size;
}

std::string names_of(const std::vector<Direction>& directions) {
  std::string names;
  for (Direction direction : directions) {
    if (!names.empty()) names += ',';
    names += to_string(direction);
  }
  return names;
}

}  // namespace

void OptionGroup::value(const std::string& name, const std::string& placeholder,
                        const std::string& help, Setter set) {
  const auto once = [name, set = std::move(set)](const std::vector<std::string>& texts) {
    if (texts.size() != 1) {
      fail_usage(fmt::format("{} takes one value, here are {}: {}", name, texts.size(),
                             fmt::join(texts, " ")));
    }
    if (trimmed(texts[0]).empty())
      fail_usage(name + " has an empty value; give one or leave it out");
    set(texts[0]);
  };
  list(name, placeholder, help, once);
}

void OptionGroup::list(const std::string& name, const std::string& placeholder,
                       const std::string& help, ListSetter set) {
  const auto checked = [name, set = std::move(set)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      if (text.starts_with("--"))
        fail_usage(fmt::format("{} lacks its value: '{}' follows; see --help", name, text));
    }
    set(texts);
  };
  app_.add_option_function<std::vector<std::string>>(name, checked, help)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name(placeholder)
      ->group(title_);
}

void OptionGroup::flag(const std::string& name, const std::string& help, bool& target, bool given) {
  const auto set = [&target, given](std::int64_t count) { target = (count > 0) == given; };
  app_.add_flag_function(name, set, help)->group(title_);
}

void OptionGroup::count(const std::string& name, const std::string& help, int& target, int low) {
  value(name, "N", help, [name, low, &target](const std::string& text) {
    target = static_cast<int>(parse_integer(text, name, low, kMaxInt));
  });
}

void OptionGroup::number(const std::string& name, const std::string& unit, const std::string& help,
                         double& target, double low, double high) {
  value(name, unit, help, [name, low, high, &target](const std::string& text) {
    target = parse_number(text, name, low, high);
  });
}

void OptionGroup::text(const std::string& name, const std::string& placeholder,
                       const std::string& help, std::string& target) {
  value(name, placeholder, help, [&target](const std::string& text) { target = text; });
}

void add_virtual_hosts(OptionGroup& group, Options& options) {
  group.count("--ranks-per-host", "virtual hosts of N ranks, to try two-level schedules on one",
              options.ranks_per_host);
}

void add_transport_choice(OptionGroup& group, Options& options) {
  group.list("--transport", "LIST",
             "what moves the bytes (default mpi,shm: those that work\nhere); --list-transports",
             [&options](const auto& texts) {
               options.transports = parse_names(texts, "--transport");
               options.transports_given = true;
             });
}

void add_timeout(OptionGroup& group, Options& options) {
  group.number("--timeout", "S", "seconds without progress until the run gives up (default 60)",
               options.timeout, 1e-3, kLongest);
}

void add_queue_pairs(OptionGroup& group, const std::string& help, Options& options) {
  group.value("--qps", "N", help, [&options](const std::string& text) {
    options.queue_pairs = static_cast<int>(parse_integer(text, "--qps", 1, kMostQueuePairs));
  });
}

void add_sampling_options(OptionGroup& group, Options& options) {
  group.value("--precision", "P", "stop when the median is known to P, 2% or 0.02 (default 2%)",
              [&options](const std::string& text) {
                options.precision = parse_share(text, "--precision");
              });
  group.number("--min-time", "S", "seconds of samples of a cell, at least (default 0.05)",
               options.min_time, 0, kLongest);
  group.number("--max-time", "S", "seconds of samples of a cell, at most (default 1)",
               options.max_time, 1e-6, kLongest);
  group.flag("--hot",
             "the same buffers in every iteration, in the caches (default:\nbuffers rotate)",
             options.hot);
}

void add_row_files(OptionGroup& group, std::string_view program, Options& options) {
  group.text(
      "--csv", "FILE",
      fmt::format("a row a cell, appended (default results/weft-{}.csv);\nnone: no file", program),
      options.csv);
  group.text("--json", "FILE", "the rows of this launch and its provenance", options.json);
}

void add_queue_pairs_file(OptionGroup& group, Options& options) {
  group.text("--queue-pairs", "FILE", "what went over each queue pair of verbs, as CSV",
             options.queue_pairs_file);
}

void add_samples_file(OptionGroup& group, Options& options) {
  group.text("--samples", "FILE", "times of each iteration and rank, as CSV", options.samples);
}

void add_layout_options(CLI::App& app, Options& options) {
  OptionGroup group(app, "Layout (tp x cp x dp x pp = ranks)");
  LayoutSpec& layout = options.layout;
  group.count("--tp", "tensor parallelism, ranks that share a layer (default 1)", layout.tp);
  group.count("--cp", "context parallelism (default 1)", layout.cp);
  group.count("--dp", "data parallelism, replicas (default: what is left)", layout.dp);
  group.count("--pp", "pipeline stages (default 1)", layout.pp);
  group.count("--ep", "expert parallelism, divides dp x cp x tp / etp (default 1)", layout.ep);
  group.count("--etp", "tensor parallelism of experts (default: tp)", layout.etp);
  group.text("--order", "A-B-C-D-E", "which neighbours come first (default tp-cp-ep-dp-pp)",
             layout.order);
  add_virtual_hosts(group, options);
}

void add_shape_options(CLI::App& app, const Pattern& pattern, Options& options) {
  OptionGroup group(app, "Shape of what is computed and sent");
  PatternOptions& shape = options.pattern;
  group.text("--model", "NAME",
             fmt::format("model shape (default {}); --list-models", pattern.default_model),
             options.model);
  group.value(
      "--seq", "N", "tokens in a sequence (default: the model's)",
      [&shape](const std::string& text) { shape.seq = parse_integer(text, "--seq", 1, kMaxInt); });
  group.value("--micro-batch", "N", "sequences in a micro-batch (default 1)",
              [&shape](const std::string& text) {
                shape.micro_batch = parse_integer(text, "--micro-batch", 1, kMaxInt);
              });
  group.count("--micro-batches", "micro-batches in an iteration (default 1)", shape.micro_batches);
  group.count("--layers", "layers (default: the model's)", shape.layers);
  group.list("--dtype", "LIST", "f32, bf16, f16: storage; sums are f32 (default f32)",
             [&options](const auto& texts) { parse_dtypes(texts, options); });
  group.list(
      "--direction", "LIST",
      fmt::format("of {} (default: all of them)", names_of(pattern.directions)),
      [&options, &pattern](const auto& texts) { parse_directions(texts, pattern, options); });
  group.text("--scene", "ID", "play a scene of the source documents, e.g. S4", options.scene);
  group.list("--sizes", "LIST",
             "sweep message sizes in place of a model, bytes: A:B:xF,\nA:B:+S, A:B or A; see below",
             [&options](const std::vector<std::string>& texts) {
               options.sizes = parse_sizes(fmt::format("{}", fmt::join(texts, ",")));
             });
}

void add_transport_options(CLI::App& app, Options& options) {
  OptionGroup group(app, "Transport");
  add_transport_choice(group, options);
  group.list(
      "--algorithm", "LIST", "collective algorithms (default: each transport's own)",
      [&options](const auto& texts) { options.algorithms = parse_names(texts, "--algorithm"); });
  add_timeout(group, options);
}

void add_measure_options(CLI::App& app, Options& options) {
  OptionGroup group(app, "Measurement");
  group.list("--phase", "LIST", "compute, comm, serial, overlap (default: all; of a sweep comm)",
             [&options](const auto& texts) { parse_phases(texts, options); });
  add_sampling_options(group, options);
  group.flag("--no-verify", "do not check results before timing", options.verify, false);
  group.count("--threads", "threads of a rank's gemm (default: cores / ranks of the host)",
              options.threads);
  group.value("--seed", "N", "of all random data (default 1)", [&options](const std::string& text) {
    options.seed = parse_unsigned(text, "--seed");
  });
  OptionGroup hidden(app, "");
  hidden.value("--inject", "FAULT", "fault injection, for tests",
               [&options](const std::string& text) { options.injection = Injection::parse(text); });
}

void add_output_options(CLI::App& app, const Pattern& pattern, Options& options) {
  OptionGroup group(app, "Files (results/SCHEMA.md explains each column)");
  add_row_files(group, pattern.name, options);
  group.text("--flows", "FILE", "who sent how much to whom, as CSV", options.flows);
  add_queue_pairs_file(group, options);
  add_samples_file(group, options);
  group.text("--traffic", "FILE", "traffic figures of each dimension and network, as CSV",
             options.traffic);
  group.text("--trace", "FILE", "a few iterations for ui.perfetto.dev, as JSON", options.trace);
}

void add_traffic_options(CLI::App& app, Options& options) {
  OptionGroup group(app, "Traffic figures");
  group.value("--mtu", "BYTES", "path MTU that packets are counted at (default 4096)",
              [&options](const std::string& text) {
                options.mtu = parse_integer(text, "--mtu", 64, 65536);
              });
  group.value("--elephant", "BYTES", "flows of this size and more are elephants (default 1MB)",
              [&options](const std::string& text) { options.elephant = elephant_size(text); });
  group.value("--paths", "N", "equal-cost paths that flows are spread over (default 8)",
              [&options](const std::string& text) {
                options.paths = static_cast<int>(parse_integer(text, "--paths", 1, kMostPaths));
              });
  group.value("--ecmp-hash", "NAME",
              "how a switch picks a path: ideal, crc32, toeplitz, xor\n(default ideal)",
              [&options](const std::string& text) { options.ecmp_hash = find_ecmp_hash(text); });
  add_queue_pairs(group,
                  "queue pairs of a pair of ranks: those of verbs, and for the\npath figures of "
                  "other transports (default 1)",
                  options);
  group.value("--link-rate", "GBIT",
              "rate of each link between hosts, Gbit/s (default: what\nthe system says of the "
              "fastest interface)",
              [&options](const std::string& text) {
                options.link_rate_gbps = parse_number(text, "--link-rate", kSlowestLink, 1e6);
              });
}

}  // namespace weft
