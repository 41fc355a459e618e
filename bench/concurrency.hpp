// How much is under way at once.
#pragma once

#include <cstdint>

#include "bench/burst.hpp"

namespace weft {

/// 0 without times.
struct Concurrency {
  /// Most flows (source, destination, channel) with a message between its post and its completion.
  std::int64_t flows_max = 0;
  /// Most sources with a message under way to one destination: what a receiver's port must take at
  /// once.
  std::int64_t fan_in_max = 0;
};
/// A message that ends at the very instant at which another begins is not beside it; one that takes
/// no time is under way at its instant.
Concurrency concurrency_of(const Timeline& timeline);

}  // namespace weft
