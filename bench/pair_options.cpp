#include "bench/pair_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/option_groups.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kDefaultSizes = "8,4K,64K,1M";
constexpr Bytes kWordBytes = size_of(DType::f32);
constexpr Bytes kMostInWindow = Bytes{64} << 20;

constexpr std::string_view kFooter =
    R"(Tests:  latency (half of a round trip), bandwidth (one way: a window of messages, until the
        receiver has answered), bidirectional (both send a window at once; the sum counts).
        Each ordered pair has its own: 0 -> 1 is begun by 0.
Sizes:  4096 is bytes; K, M, G are powers of 1024; KB, MB, GB powers of 1000; 4K:64M:x4 is a series.
        Multiples of 4.
Units:  times in us, rates in GB/s (1 GB = 1e9 bytes).
Exit:   0 fine, 1 verification failed, 2 wrong usage or environment, 3 inconclusive, 4 timed out.

Examples:
  mpiexec -n 2 weft-pairs --transport shm,mpi
  mpiexec -n 8 weft-pairs --sizes 8,1M --rounds 3 --csv pairs.csv)";

void add_tests(CLI::App& app, PairOptions& options) {
  OptionGroup group(app, "What is measured between whom");
  group.list("--sizes", "LIST", fmt::format("message sizes, bytes (default {})", kDefaultSizes),
             [&options](const std::vector<std::string>& texts) {
               options.common.sizes = parse_sizes(fmt::format("{}", fmt::join(texts, ",")));
             });
  group.text("--pairs", "FILE", "these pairs, two ranks a line (default: all of them)",
             options.pairs_file);
  group.count("--rounds", "measure all pairs N times (default 1)", options.rounds);
  group.count("--window",
              "messages posted together, at most (default 64; less of\nlong ones: 64 MiB)",
              options.window);
  group.flag("--one-at-a-time",
             "one pair after the other (default: as many as there\nare ranks for)",
             options.one_at_a_time);
  add_virtual_hosts(group, options.common);
}

void add_options(CLI::App& app, PairOptions& options) {
  Options& common = options.common;
  add_tests(app, options);
  OptionGroup transport(app, "Transport");
  add_transport_choice(transport, common);
  add_queue_pairs(transport, "queue pairs of a pair of ranks (verbs) (default 1)", common);
  add_timeout(transport, common);
  add_verbs_options(app, common);
  OptionGroup measurement(app, "Measurement");
  add_sampling_options(measurement, common);
  OptionGroup files(app, "Files (results/SCHEMA.md explains each column)");
  add_row_files(files, "pairs", common);
  add_queue_pairs_file(files, common);
  add_samples_file(files, common);
  const std::string title = "Information and configuration";
  OptionGroup information(app, title);
  add_transport_list(information, common);
  add_general_options(app, title);
}

void check_sizes(const std::vector<Bytes>& sizes) {
  for (const Bytes size : sizes) {
    if (size % kWordBytes != 0) {
      fail_usage(fmt::format("--sizes: a message of {} bytes is no multiple of {}; choose another",
                             size, kWordBytes));
    }
  }
}

}  // namespace

bool parse_pair_options(int argc, char** argv, PairOptions& options, bool output) {
  const CommandLine command_line{
      "pairs", "Bandwidth and latency between pairs of ranks: one pair, or all of them",
      [&options](CLI::App& app) { add_options(app, options); }, std::string(kFooter)};
  if (!parse_command_line(argc, argv, command_line, options.common, output)) return false;
  if (options.common.sizes.empty()) options.common.sizes = parse_sizes(kDefaultSizes);
  check_sizes(options.common.sizes);
  return true;
}

int window_of(const PairOptions& options, Bytes size) {
  const Bytes fitting = std::max<Bytes>(2, kMostInWindow / size);
  return static_cast<int>(std::min<Bytes>(options.window, fitting));
}

}  // namespace weft
