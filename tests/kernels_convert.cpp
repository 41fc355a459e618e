// bf16 and f16, each of the 65536 values and the points between them, against the definition of the
// formats.
#include "kernels/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/vector_math.hpp"

namespace weft {
namespace {

struct Format {
  DType dtype;
  int mantissa_bits, exponent_bits;
};
constexpr Format kFormats[] = {{DType::bf16, 7, 8}, {DType::f16, 10, 5}};

/// The value of a bit pattern by the rules of IEEE 754.
double value_of(std::uint16_t bits, const Format& f) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << f.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

std::uint16_t stored(double value, DType dtype) {
  std::uint16_t bits = 0;
  store_element(reinterpret_cast<std::byte*>(&bits), dtype, 0, value);
  return bits;
}

std::uint16_t stored_in_bulk(float value, DType dtype) {
  std::vector<float> values(8, value);  // a whole vector
  std::uint16_t bits[8];
  from_f32(reinterpret_cast<std::byte*>(bits), values.data(), dtype, 8);
  return bits[5];
}

TEST(Convert, EveryPatternLoads) {
  const auto patterns = all_patterns();
  const auto* bytes = reinterpret_cast<const std::byte*>(patterns.data());
  for (const Format& format : kFormats) {
    std::vector<float> bulk(patterns.size());
    to_f32(bulk.data(), bytes, format.dtype, static_cast<Index>(bulk.size()));
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      const double expected = value_of(patterns[i], format);
      const double loaded = load_element(bytes, format.dtype, static_cast<Index>(i));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(loaded) && std::isnan(bulk[i])) << i;
      } else {
        ASSERT_EQ(loaded, expected) << i;
        ASSERT_EQ(bulk[i], expected) << i;
        ASSERT_EQ(std::signbit(loaded), std::signbit(expected)) << i;
      }
    }
  }
}

TEST(Convert, EveryPatternStores) {
  const auto patterns = all_patterns();
  for (const Format& format : kFormats) {
    std::vector<float> values(patterns.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(value_of(patterns[i], format));
    std::vector<std::uint16_t> bulk(patterns.size());
    from_f32(reinterpret_cast<std::byte*>(bulk.data()), values.data(), format.dtype, 65536);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(value_of(bulk[i], format)));
        ASSERT_TRUE(std::isnan(value_of(stored(values[i], format.dtype), format)));
      } else {
        ASSERT_EQ(bulk[i], patterns[i]);
        ASSERT_EQ(stored(values[i], format.dtype), patterns[i]);
      }
    }
  }
}

// Between neighbours a < b: below the middle gives a, above gives b, the middle the even one. The
// middle has one bit more than the format and so is exact in f32.
TEST(Convert, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    const auto infinity =
        static_cast<std::uint16_t>(((1 << format.exponent_bits) - 1) << format.mantissa_bits);
    for (std::uint16_t a = 0; a + 1 < infinity; ++a) {
      const auto b = static_cast<std::uint16_t>(a + 1);
      const std::uint16_t even = a % 2 == 0 ? a : b;
      const double middle = (value_of(a, format) + value_of(b, format)) / 2;
      for (const int sign : {0, 0x8000}) {
        const double s = sign != 0 ? -1.0 : 1.0;
        ASSERT_EQ(stored(s * middle, format.dtype), even | sign) << a;
        // A double this close to the middle becomes the middle in f32: rounding twice would go
        // wrong.
        ASSERT_EQ(stored(s * std::nextafter(middle, 0.0), format.dtype), a | sign) << a;
        ASSERT_EQ(stored(s * std::nextafter(middle, 1e300), format.dtype), b | sign) << a;
        const auto in_f32 = static_cast<float>(middle);
        ASSERT_EQ(stored_in_bulk(static_cast<float>(s) * in_f32, format.dtype), even | sign) << a;
        ASSERT_EQ(stored(s * in_f32, format.dtype), even | sign) << a;
      }
    }
  }
}

TEST(Convert, OverflowGivesInfinity) {
  for (const Format& format : kFormats) {
    const auto infinity =
        static_cast<std::uint16_t>(((1 << format.exponent_bits) - 1) << format.mantissa_bits);
    const double largest = value_of(static_cast<std::uint16_t>(infinity - 1), format);
    const double spacing = largest - value_of(static_cast<std::uint16_t>(infinity - 2), format);
    EXPECT_EQ(stored(largest + spacing * 0.499, format.dtype), infinity - 1);
    EXPECT_EQ(stored(largest + spacing * 0.5, format.dtype), infinity);
    EXPECT_EQ(stored(-1e300, format.dtype), infinity | 0x8000);
    EXPECT_EQ(stored(std::numeric_limits<double>::infinity(), format.dtype), infinity);
    EXPECT_EQ(stored_in_bulk(3.4e38f, format.dtype), infinity);
  }
}

TEST(Convert, NumbersBelowTheSmallest) {
  EXPECT_EQ(stored(0x1p-25, DType::f16), 0) << "half of the smallest: to even";
  EXPECT_EQ(stored(0x1.8p-25, DType::f16), 1);
  EXPECT_EQ(stored(-0.0, DType::f16), 0x8000);
  EXPECT_EQ(stored(-0.0, DType::bf16), 0x8000);
  EXPECT_EQ(stored(1e-300, DType::bf16), 0);
}

TEST(Convert, Integers) {
  std::int32_t values[4];
  auto* bytes = reinterpret_cast<std::byte*>(values);
  store_element(bytes, DType::i32, 0, 2147483646.6);
  store_element(bytes, DType::i32, 1, -1e10);
  store_element(bytes, DType::i32, 2, std::numeric_limits<double>::quiet_NaN());
  store_element(bytes, DType::i32, 3, 1e10);
  EXPECT_EQ(values[0], 2147483647);
  EXPECT_EQ(values[1], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(values[2], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(values[3], std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(load_element(bytes, DType::i32, 0), 2147483647.0);
  const float floats[] = {2.5f, -3.5f, 7.0f, 0.4f};
  from_f32(bytes, floats, DType::i32, 4);
  EXPECT_EQ(values[0], 2);
  EXPECT_EQ(values[1], -4);
  float back[4];
  to_f32(back, bytes, DType::i32, 4);
  EXPECT_EQ(back[2], 7.0f);
}

TEST(Convert, LengthsThatAreNoMultipleOfAVector) {
  for (const Format& format : kFormats) {
    for (Index n = 0; n <= 17; ++n) {
      std::vector<float> in(17), out(18, -1.0f);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) + 0.5f;
      std::vector<std::uint16_t> half(18, 0xABCD);
      from_f32(reinterpret_cast<std::byte*>(half.data()), in.data(), format.dtype, n);
      EXPECT_EQ(half[static_cast<std::size_t>(n)], 0xABCD);
      to_f32(out.data(), reinterpret_cast<const std::byte*>(half.data()), format.dtype, n);
      EXPECT_EQ(out[static_cast<std::size_t>(n)], -1.0f);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) EXPECT_EQ(out[i], in[i]);
    }
  }
}

double units_off(double actual, double expected) {
  return std::fabs(actual / expected - 1.0) / 0x1p-24;
}

TEST(VectorMath, Exponential) {
  for (float x = 0.0f; x > -85.9f; x -= 0.0123f) {
    ASSERT_LT(units_off(exp_nonpositive(x), std::exp(static_cast<double>(x))), 2.0) << x;
  }
  EXPECT_EQ(exp_nonpositive(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive(-87.0f), 0.0f);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(exp_nonpositive(std::numeric_limits<float>::quiet_NaN())));
}

TEST(VectorMath, SigmoidAndNormal) {
  for (float x = -12.0f; x < 12.0f; x += 0.0037f) {
    const double exact = x;
    ASSERT_LT(units_off(sigmoid(x), 1.0 / (1.0 + std::exp(-exact))), 6.0) << x;
    const Normal normal = standard_normal(x);
    ASSERT_LT(units_off(normal.lower_tail, std::erfc(-exact / std::sqrt(2.0)) / 2.0), 10.0) << x;
    ASSERT_LT(units_off(normal.density, std::exp(-exact * exact / 2.0) / std::sqrt(2.0 * M_PI)),
              6.0)
        << x;
  }
  for (const float x : {-1e38f, -20.0f}) EXPECT_EQ(standard_normal(x).lower_tail, 0.0f);
  for (const float x : {1e38f, 20.0f}) EXPECT_EQ(standard_normal(x).lower_tail, 1.0f);
}

}  // namespace
}  // namespace weft
