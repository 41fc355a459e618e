// What a set of buffers holds, as one number.
#pragma once

#include <cstdint>

#include "bench/placement.hpp"

namespace weft {

/// 64-bit digest of the tensors of a program; of a large tensor blocks spread over it, first and
/// last byte included. Equal contents give equal digests; any changed byte that is looked at
/// changes it.
std::uint64_t contents_digest(const Program& program, const TensorPlacement& placement);

}  // namespace weft
