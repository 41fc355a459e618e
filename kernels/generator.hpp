// Contents of tensors: a counter-based generator keyed by (seed, tensor name, global element), so
// that any rank can make any shard, and the reference any element.
#pragma once

#include "kernels/backend.hpp"

namespace weft {

/// The value of a global element before rounding to storage: `row`, `col` are global, `slot` is the
/// global slot. It is exact in f32, so that rounding it to storage rounds once.
double generated_value(const Tensor& tensor, std::uint64_t seed, int slot, Index row, Index col);

/// Fills the local block of one local slot as Tensor::fill says (converted to storage). `data` is
/// the first element of that slot. Fill::none leaves it as it is.
void fill_tensor(const Tensor& tensor, int slot, std::byte* data, std::uint64_t seed);

/// The integer test pattern of byte-exact checks of communication: a small integer that depends on
/// rank, position and iteration, exact in every dtype, also when `summands` of them (at least 16)
/// are summed, up to 256 in bf16, 2048 in f16.
double pattern_value(Rank rank, Index element, std::uint64_t iteration, DType dtype,
                     int summands = 16);
/// Elements first, first+1, ... of the pattern.
void fill_pattern(std::byte* data, Index elements, DType dtype, Rank rank, std::uint64_t iteration,
                  int summands = 16, Index first = 0);

/// Poison, so that an unwritten output is seen: NaN in floats, INT_MIN in i32.
void poison(std::byte* data, Index elements, DType dtype);

}  // namespace weft
