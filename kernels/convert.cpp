#include "kernels/convert.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/backend.hpp"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace weft {
namespace {

template <class T>
T load(const std::byte* data, Index index) {
  T value;
  std::memcpy(&value, data + index * static_cast<Index>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* data, Index index, T value) {
  std::memcpy(data + index * static_cast<Index>(sizeof(T)), &value, sizeof(T));
}

std::int32_t to_i32(double value) {
  if (!(value >= -0x1p31)) return std::numeric_limits<std::int32_t>::min();  // NaN too
  if (value >= 0x1p31) return std::numeric_limits<std::int32_t>::max();
  const double rounded = std::nearbyint(value);
  return rounded >= 0x1p31 ? std::numeric_limits<std::int32_t>::max()
                           : static_cast<std::int32_t>(rounded);
}

// Rounds to odd, so that a second rounding to fewer bits gives what one rounding of `value` would
// have given.
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const bool even = (std::bit_cast<std::uint32_t>(nearest) & 1u) == 0;
  if (std::isnan(value) || static_cast<double>(nearest) == value || !even) return nearest;
  const float towards = value > nearest ? std::numeric_limits<float>::infinity()
                                        : -std::numeric_limits<float>::infinity();
  return std::nextafter(nearest, towards);
}

// The vector part of the two f16 loops; returns how many elements it did.
#ifdef __F16C__
Index f16_to_f32_vectors(float* out, const std::byte* in, Index n) {
  Index i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 2 * i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  return i;
}

Index f32_to_f16_vectors(std::byte* out, const float* in, Index n) {
  Index i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), half);
  }
  return i;
}
#else
Index f16_to_f32_vectors(float*, const std::byte*, Index) { return 0; }
Index f32_to_f16_vectors(std::byte*, const float*, Index) { return 0; }
#endif

}  // namespace

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity, NaN
    const std::uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13) | quiet);
  }
  // The exponent fields differ by 112; multiplying also normalises the subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

std::uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const auto with_sign = [sign](std::uint32_t half) {
    return static_cast<std::uint16_t>(sign | half);
  };
  if (magnitude > 0x7F800000u) return with_sign(0x7E00u | ((magnitude >> 13) & 0x3FFu));
  if (magnitude >= 0x477FF000u) return with_sign(0x7C00u);  // 65520 and above
  if (magnitude < 0x38800000u) {                            // below 2^-14: subnormal
    // Adding 0.5 lets the adder round at 2^-24, the spacing of f16 subnormals.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return with_sign(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u);
  }
  const std::uint32_t rebased = magnitude - (112u << 23);
  return with_sign((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13);
}

void to_f32(float* out, const std::byte* in, DType dtype, Index n) {
  if (n <= 0) return;
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::bf16:
      for (Index i = 0; i < n; ++i) out[i] = bf16_to_f32(load<std::uint16_t>(in, i));
      return;
    case DType::f16:
      for (Index i = f16_to_f32_vectors(out, in, n); i < n; ++i)
        out[i] = f16_to_f32(load<std::uint16_t>(in, i));
      return;
    case DType::i32:
      for (Index i = 0; i < n; ++i) out[i] = static_cast<float>(load<std::int32_t>(in, i));
      return;
  }
}

void from_f32(std::byte* out, const float* in, DType dtype, Index n) {
  if (n <= 0) return;
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::bf16:
      for (Index i = 0; i < n; ++i) store(out, i, f32_to_bf16(in[i]));
      return;
    case DType::f16:
      for (Index i = f32_to_f16_vectors(out, in, n); i < n; ++i) store(out, i, f32_to_f16(in[i]));
      return;
    case DType::i32:
      for (Index i = 0; i < n; ++i) store(out, i, to_i32(in[i]));
      return;
  }
}

double load_element(const std::byte* data, DType dtype, Index index) {
  switch (dtype) {
    case DType::f32:
      return load<float>(data, index);
    case DType::bf16:
      return bf16_to_f32(load<std::uint16_t>(data, index));
    case DType::f16:
      return f16_to_f32(load<std::uint16_t>(data, index));
    case DType::i32:
      return load<std::int32_t>(data, index);
  }
  return 0.0;
}

void store_element(std::byte* data, DType dtype, Index index, double value) {
  switch (dtype) {
    case DType::f32:
      return store(data, index, static_cast<float>(value));
    case DType::bf16:
      return store(data, index, f32_to_bf16(round_to_odd(value)));
    case DType::f16:
      return store(data, index, f32_to_f16(round_to_odd(value)));
    case DType::i32:
      return store(data, index, to_i32(value));
  }
}

}  // namespace weft
