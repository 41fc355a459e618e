// The vector part of sums of many buffers. Private to reduce*.cpp.
#pragma once

#include "kernels/backend.hpp"

namespace weft {

/// Sums as reduce_sum_to_all() does, from the first element on, in the order of the sources;
/// returns how many elements it did, which may be none: the rest is the caller's. Element i is read
/// from all sources before it is written, so an output may be a source.
Index sum_vectors(std::byte* const* outs, int out_count, const std::byte* const* sources, int count,
                  Index n, DType dtype, bool streaming);

}  // namespace weft
