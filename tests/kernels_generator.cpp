#include "kernels/generator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace weft {
namespace {

constexpr std::uint64_t kSeed = 42;

Tensor tensor_of(Fill fill, DType dtype = DType::f32, Index rows = 6, Index cols = 10) {
  Tensor t;
  t.name = "X";
  t.dtype = dtype;
  t.rows = t.global_rows = rows;
  t.cols = t.global_cols = cols;
  t.fill = fill;
  return t;
}

std::vector<double> filled(const Tensor& t, int slot = 0, std::uint64_t seed = kSeed) {
  std::vector<std::byte> data(static_cast<std::size_t>(t.elements() * size_of(t.dtype)));
  fill_tensor(t, slot, data.data(), seed);
  std::vector<double> values;
  for (Index i = 0; i < t.elements(); ++i) values.push_back(load_element(data.data(), t.dtype, i));
  return values;
}

TEST(Generator, AShardIsAPartOfTheWhole) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Fill fill : {Fill::uniform, Fill::positive, Fill::zipf_bias, Fill::constant}) {
      const Tensor whole = tensor_of(fill, dtype);
      Tensor shard = whole;
      shard.rows = 2;
      shard.cols = 3;
      shard.row_offset = 4;
      shard.col_offset = 5;
      const auto all = filled(whole), part = filled(shard);
      for (Index r = 0; r < 2; ++r) {
        for (Index c = 0; c < 3; ++c) {
          EXPECT_EQ(part[static_cast<std::size_t>(r * 3 + c)],
                    all[static_cast<std::size_t>((r + 4) * 10 + c + 5)]);
        }
      }
    }
  }
}

TEST(Generator, StoredIsGeneratedRounded) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Fill fill : {Fill::uniform, Fill::positive, Fill::zipf_bias}) {
      Tensor t = tensor_of(fill, dtype, 3, 1500);
      t.scale = 0.37;
      const auto values = filled(t);
      for (Index i = 0; i < t.elements(); ++i) {
        std::byte expected[4];
        store_element(expected, dtype, 0, generated_value(t, kSeed, 0, i / 1500, i % 1500));
        ASSERT_EQ(values[static_cast<std::size_t>(i)], load_element(expected, dtype, 0)) << i;
      }
    }
  }
}

TEST(Generator, GlobalSlotsDiffer) {
  Tensor t = tensor_of(Fill::uniform);
  t.slots = 3;
  Tensor later = t;
  later.slot_offset = 2;
  EXPECT_EQ(filled(t, 2), filled(later, 0));
  EXPECT_NE(filled(t, 0), filled(t, 1));
}

TEST(Generator, SeedAndNameDecide) {
  Tensor t = tensor_of(Fill::uniform);
  EXPECT_EQ(filled(t), filled(t));
  EXPECT_NE(filled(t), filled(t, 0, kSeed + 1));
  Tensor other = t;
  other.name += "2";
  EXPECT_NE(filled(t), filled(other));
}

// From another implementation of the same hash (Python integers): contents stay the same over
// versions.
TEST(Generator, ContentsStayWhatTheyAre) {
  const Tensor t = tensor_of(Fill::uniform);
  EXPECT_EQ(generated_value(t, 1, 0, 0, 0), -0x1.67917c0000000p-1);
  EXPECT_EQ(generated_value(t, 1, 0, 5, 9), -0x1.a125380000000p-1);
}

TEST(Generator, UniformIsUniform) {
  Tensor t = tensor_of(Fill::uniform, DType::f32, 100, 1000);
  t.scale = 2.0;
  double sum = 0, squares = 0, neighbours = 0, last = 0;
  std::vector<int> histogram(20);
  for (const double value : filled(t)) {
    ASSERT_LE(std::fabs(value), 2.0);
    sum += value;
    squares += value * value;
    neighbours += value * last;
    last = value;
    ++histogram[static_cast<std::size_t>((value + 2.0) / 4.0 * 19.999)];
  }
  const double n = 1e5;
  EXPECT_NEAR(sum / n, 0.0, 5 * 2.0 / std::sqrt(3 * n));
  EXPECT_NEAR(squares / n, 4.0 / 3.0, 0.03);
  EXPECT_NEAR(neighbours / n, 0.0, 0.03);
  for (const int count : histogram) EXPECT_NEAR(count, 5000, 400);
}

TEST(Generator, OtherKinds) {
  Tensor positive = tensor_of(Fill::positive);
  positive.scale = 0.5;
  for (const double value : filled(positive)) EXPECT_TRUE(value >= 0 && value <= 0.5) << value;
  Tensor constant = tensor_of(Fill::constant);
  constant.scale = -1.5;
  EXPECT_EQ(filled(constant), std::vector<double>(60, -1.5));
  EXPECT_EQ(filled(tensor_of(Fill::zero, DType::i32)), std::vector<double>(60, 0.0));
  Tensor zipf = tensor_of(Fill::zipf_bias, DType::f32, 1, 4);
  zipf.scale = 2.0;
  EXPECT_NEAR(std::exp(filled(zipf)[3]), 1.0 / 16.0, 1e-7);
}

TEST(Generator, ListedValues) {
  Tensor t = tensor_of(Fill::values, DType::i32, 1, 3);
  t.global_cols = 6;
  t.col_offset = 3;
  t.slots = 2;
  t.values = {5, -6, 16777217, 8, 9, 10};
  EXPECT_EQ(filled(t, 0), (std::vector<double>{5, -6, 16777217}));
  EXPECT_EQ(filled(t, 1), (std::vector<double>{8, 9, 10}));
}

TEST(Generator, NothingIsFilledWithNothing) {
  const Tensor t = tensor_of(Fill::none);
  std::vector<std::byte> data(static_cast<std::size_t>(t.bytes()), std::byte{7});
  fill_tensor(t, 0, data.data(), kSeed);
  EXPECT_EQ(data, std::vector<std::byte>(data.size(), std::byte{7}));
}

TEST(Pattern, SumsOfSixteenAreExact) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    std::vector<std::vector<std::byte>> data(16, std::vector<std::byte>(4096 * 4));
    std::vector<const std::byte*> sources;
    for (int r = 0; r < 16; ++r) {
      fill_pattern(data[static_cast<std::size_t>(r)].data(), 4096, dtype, r, 3);
      sources.push_back(data[static_cast<std::size_t>(r)].data());
    }
    std::vector<std::byte> sum(4096 * 4);
    reduce_sum(sum.data(), sources.data(), 16, 4096, dtype);
    for (Index i = 0; i < 4096; ++i) {
      double expected = 0;
      for (int r = 0; r < 16; ++r) expected += pattern_value(r, i, 3, dtype);
      ASSERT_EQ(load_element(sum.data(), dtype, i), expected);
    }
  }
}

TEST(Pattern, DependsOnRankPositionAndIteration) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    int equal_rank = 0, equal_position = 0, equal_iteration = 0;
    std::set<double> seen;
    for (Index i = 0; i < 1000; ++i) {
      const double value = pattern_value(1, i, 1, dtype);
      EXPECT_EQ(value, std::round(value));
      seen.insert(value);
      equal_rank += value == pattern_value(2, i, 1, dtype);
      equal_position += value == pattern_value(1, i + 1, 1, dtype);
      equal_iteration += value == pattern_value(1, i, 2, dtype);
    }
    EXPECT_GE(seen.size(), 33u);
    for (const int equal : {equal_rank, equal_position, equal_iteration}) EXPECT_LT(equal, 80);
  }
}

TEST(Poison, IsNanOrTheSmallestInteger) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    std::vector<std::byte> data(3000 * 4 + 4, std::byte{1});
    poison(data.data(), 3000, dtype);
    for (const Index i : {0, 1023, 1024, 2999}) {
      const double value = load_element(data.data(), dtype, i);
      if (dtype == DType::i32) {
        EXPECT_EQ(value, std::numeric_limits<std::int32_t>::min());
      } else {
        EXPECT_TRUE(std::isnan(value));
      }
    }
    EXPECT_EQ(data[static_cast<std::size_t>(3000 * size_of(dtype))], std::byte{1});
  }
}

}  // namespace
}  // namespace weft
