// Storage of floating types that C++20 does not have: bf16 and f16 against f32, rounded to nearest
// even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "patterns/types.hpp"

namespace weft {

/// bf16 is the upper half of an f32.
inline float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// To nearest even; overflow gives infinity, a NaN stays a (quiet) NaN. Branch-free, so that loops
/// vectorise.
inline std::uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/// IEEE binary16, subnormals included. One element at a time: to_f32() and from_f32() are the fast
/// way.
float f16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);

/// out[i] = in[i] as f32, for `n` stored elements of any type (i32 is rounded to f32).
void to_f32(float* out, const std::byte* in, DType dtype, Index n);

/// Stores n values, rounded to nearest even. To i32: to the nearest integer, saturating; NaN gives
/// INT32_MIN.
void from_f32(std::byte* out, const float* in, DType dtype, Index n);

}  // namespace weft
