// The command line of weft-pairs.
#pragma once

#include <string>

#include "bench/options.hpp"

namespace weft {

struct PairOptions {
  Options common;          // what it shares with the pattern programs; sizes are filled in
  std::string pairs_file;  // empty: all pairs
  int rounds = 1;
  int window = 64;  // messages posted together, at most
  bool one_at_a_time = false;
};

/// As parse_options().
bool parse_pair_options(int argc, char** argv, PairOptions& options, bool output);

/// Messages of `size` bytes that are posted together: those asked for, but of long messages no more
/// than 64 MiB, and then two at least.
int window_of(const PairOptions& options, Bytes size);

}  // namespace weft
