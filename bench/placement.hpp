// Where the tensors of a program lie: one set of buffers, which every transport that runs the
// program uses, and as many sets as it takes to rotate through more than the caches hold.
#pragma once

#include <vector>

#include "kernels/buffer.hpp"
#include "patterns/program.hpp"

namespace weft {

/// One set of buffers for the tensors of a program, taken from an arena.
class TensorPlacement {
 public:
  TensorPlacement(const Program& program, Arena& arena);
  /// Arena bytes of one set, with alignment.
  static Bytes bytes(const Program& program);
  std::byte* address(TensorId tensor, int slot) const {
    return addresses_[static_cast<std::size_t>(tensor)][static_cast<std::size_t>(slot)];
  }

 private:
  std::vector<std::vector<std::byte*>> addresses_;  // [tensor][slot]
};

/// Sets of buffers that iterations take in turn. Enough that those of all ranks of a host together
/// exceed twice its last-level cache, so that an iteration finds none of its data there; at most
/// kMostSets, and no more than kMostSteps bound steps in all: small messages rotate through less
/// (rotation_bytes in the row says how much). 1 where `hot`. `host_bytes` is one set of all ranks
/// of a host, `steps` those of one iteration.
int rotation_sets(Bytes host_bytes, Bytes last_level_cache, std::size_t steps, bool hot);

}  // namespace weft
