// Functions of one f32 without branches or calls, so that the compiler turns loops over them into
// vector code; a call of the C library per element would cost as much as the gemm beside it. NaN in
// gives NaN out.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace weft {

/// condition ? a : b without a branch: the compiler may not move arithmetic behind a condition and
/// so would not vectorise a loop over the operator.
inline float select(bool condition, float a, float b) {
  const std::uint32_t mask = condition ? ~0u : 0u;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(a) & mask) |
                              (std::bit_cast<std::uint32_t>(b) & ~mask));
}

/// e^x for x <= 0, within 2 units in the last place; 0 below -86 (where the true value is under
/// 1e-37).
inline float exp_nonpositive(float x) {
  constexpr float kLowest = -86.0f;
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRounder =
      12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float clamped = select(x < kLowest, kLowest, x);
  const float shifted = clamped * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * kLn2High) -
                  n * kLn2Low;  // |r| <= ln(2)/2: the Taylor sum to r^7 is exact in f32
  float sum = 1.0f / 5040.0f;
  sum = sum * r + 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127u) << 23;
  return select(x < kLowest, 0.0f, sum * std::bit_cast<float>(power));
}

/// 1 / (1 + e^-x)
inline float sigmoid(float x) {
  const float e = exp_nonpositive(-std::fabs(x));
  return select(x >= 0.0f, 1.0f, e) / (1.0f + e);
}

/// The normal distribution at x: density phi and lower tail Phi(x) = erfc(-x/sqrt 2)/2, both to a
/// few units in the last place also far in the tail (1 + erf would cancel there).
struct Normal {
  float density, lower_tail;
};
inline Normal standard_normal(float x) {
  // erfc(z) = e^(-z^2) * t * Q(w), t = 1/(1 + 0.35 z); Q interpolates erfc(z)*e^(z^2)/t for z in
  // [0, 10] at the ten Chebyshev points of t in [2/9, 1], which w maps to [-1, 1]. Relative error
  // of the fit: 1e-8.
  constexpr float kQ[] = {4.521180772e-01f, 3.143896470e-01f, 1.618161266e-01f,  5.892773155e-02f,
                          1.296836002e-02f, 4.637407187e-04f, -6.125591267e-04f, -1.058088453e-04f,
                          2.723248807e-05f, 7.456925770e-06f};
  const float magnitude = select(std::fabs(x) > 14.1f, 14.1f, std::fabs(x));
  const float z = magnitude * 0.707106781f;
  const float exponent = -0.5f * magnitude * magnitude;
  const float rounded_off = std::fma(-0.5f * magnitude, magnitude, -exponent);
  const float scale = exp_nonpositive(exponent);
  const float e = scale + scale * rounded_off;
  const float t = 1.0f / (1.0f + 0.35f * z);
  const float w = t * (18.0f / 7.0f) - 11.0f / 7.0f;
  float q = kQ[9];
  for (int i = 8; i >= 0; --i) q = q * w + kQ[i];
  const float tail = 0.5f * e * t * q;
  return {0.398942280f * e, select(x < 0.0f, tail, 1.0f - tail)};
}

}  // namespace weft
