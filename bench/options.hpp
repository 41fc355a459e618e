// The command line of every pattern program.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/ecmp.hpp"
#include "bench/injection.hpp"
#include "patterns/pattern.hpp"
#include "transports/verbs_options.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace weft {

enum class Phase : std::uint8_t { compute, comm, serial, overlap };
std::string_view to_string(Phase phase);

struct Options {
  std::vector<std::string> transports;  // default {"mpi", "shm"}: those available here
  bool transports_given = false;        // asked for by name: an unavailable one is said
  std::vector<std::string>
      algorithms;  // empty: each transport's default; else those a transport has
  std::string model;
  LayoutSpec layout;
  bool layout_given = false;  // any of --tp --cp --ep --dp --pp
  PatternOptions pattern;     // dtype and direction are filled in per cell
  std::vector<DType> dtypes{DType::f32};
  std::vector<Phase> phases;               // default all four; {comm} for a sweep
  std::vector<Direction> directions;       // empty: the pattern's
  std::vector<Bytes> sizes;                // --sizes: a message-size sweep in place of a model
  double precision = 0.02;                 // relative half-width of the median's 95% interval
  double min_time = 0.05, max_time = 1.0;  // seconds of samples per cell
  bool verify = true;
  bool hot = false;                                         // the same buffers in every iteration
  std::string csv, json, flows, queue_pairs_file, samples;  // csv "none": no file
  std::string traffic, trace;
  double timeout = 60;  // seconds without progress
  std::uint64_t seed = 1;
  int ranks_per_host = 0;      // > 0: virtual hosts
  int threads = 0;             // per rank for gemm; 0: cores / local ranks
  Bytes mtu = 4096;            // path MTU, for packet figures
  Bytes elephant = 1'000'000;  // flows from this size on are elephants
  int paths = 8;               // equal-cost paths that flows are spread over
  EcmpHash ecmp_hash = EcmpHash::ideal;
  int queue_pairs = 1;        // per pair of ranks: verbs' own, and for path figures
  VerbsOptions verbs;         // all but queue_pairs
  double link_rate_gbps = 0;  // of each link between hosts; 0: from the inventory
  std::string scene;
  Injection injection;  // --inject, hidden
  bool list_transports = false, list_models = false, show_plan = false, show_plan_json = false;
  std::vector<std::string> benchmark_arguments;  // --benchmark_*
  std::vector<std::string> command_line;
};

/// Parses (CLI11; --config F.toml too). Throws Error(usage); prints help and returns false for
/// --help and --version. `output` is false on ranks other than 0: nothing is printed there.
bool parse_options(int argc, char** argv, const Pattern& pattern, Options& options, bool output);

/// A program's own command line, for programs that play no pattern.
struct CommandLine {
  std::string_view program;  // without "weft-"
  std::string_view summary;
  std::function<void(CLI::App&)> add_options;
  std::string footer;
};
/// As parse_options(), over the options that `command_line` adds; these fill `options` by
/// themselves.
bool parse_command_line(int argc, char** argv, const CommandLine& command_line, Options& options,
                        bool output);

/// A size with an optional suffix: K, M, G, T and KiB... are powers of 1024; KB, MB, GB, TB powers
/// of 1000; a bare number is bytes; 1e6 is allowed where it is whole. Throws Error(usage) quoting
/// the text.
Bytes parse_size(std::string_view text);
/// A series "A:B:xF" (A, A*F, ... up to B), "A:B:+S" (steps of S bytes), "A:B" (x2), "A" (one),
/// comma-separated lists of these; sorted, without repeats, both ends where the series meets them.
/// Throws Error(usage) quoting the part.
std::vector<Bytes> parse_sizes(std::string_view text);
std::string size_text(Bytes bytes);  // "64 KiB"

/// N x N token counts from a CSV file. Throws Error(usage) naming file and line.
std::vector<std::vector<Index>> read_token_matrix(const std::string& path);

}  // namespace weft
