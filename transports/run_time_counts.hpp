// Run-time counts of an all_to_all_v, turned into elements and places at the start of a run.
#pragma once

#include <vector>

#include "transports/communicator.hpp"

namespace weft {

/// Elements and displacements (elements) per peer of the group. Sized once; resolve() allocates
/// nothing.
class ExchangeCounts {
 public:
  explicit ExchangeCounts(int size);
  /// Reads the operation's RunTimeCounts. Throws Error(failed), with the numbers, on a negative
  /// count, on counts for this rank itself that differ, and on more rows than `in` or `out` hold.
  void resolve(const Operation& operation, int rank);

  std::vector<Index> send, send_at, recv, recv_at;
};

}  // namespace weft
