// Sums of many buffers into many, against the same sum element by element in double precision
// steps of f32, in the order of the sources.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/convert.hpp"

namespace weft {
namespace {

constexpr Index kGuard = 32;  // elements behind the end that must stay as they are

class Buffer {
 public:
  Buffer(DType dtype, Index n) : dtype_(dtype), bytes_(static_cast<std::size_t>((n + kGuard) * 4)) {
    for (Index i = 0; i < n + kGuard; ++i) set(i, -77);
  }
  std::byte* data() { return bytes_.data(); }
  void set(Index i, double value) { store_element(bytes_.data(), dtype_, i, value); }
  double get(Index i) const { return load_element(bytes_.data(), dtype_, i); }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

double rounded(DType dtype, float sum) {
  std::byte stored[4];
  store_element(stored, dtype, 0, sum);
  return load_element(stored, dtype, 0);
}

void expect_sum(DType dtype, Index n, int sources, int outs, bool streaming) {
  std::mt19937 random(static_cast<unsigned>(n + sources));
  std::uniform_real_distribution<double> values(-100, 100);
  std::vector<Buffer> in(static_cast<std::size_t>(sources), Buffer(dtype, n)),
      out(static_cast<std::size_t>(outs), Buffer(dtype, n));
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (Buffer& b : in) {
    for (Index i = 0; i < n; ++i) b.set(i, std::floor(values(random)) + 0.25);
    from.push_back(b.data());
  }
  for (Buffer& b : out) to.push_back(b.data());
  reduce_sum_to_all(to.data(), outs, from.data(), sources, n, dtype, streaming);
  for (const Buffer& b : out) {
    for (Index i = 0; i < n; ++i) {
      auto sum = static_cast<float>(in[0].get(i));
      for (std::size_t k = 1; k < in.size(); ++k) sum += static_cast<float>(in[k].get(i));
      ASSERT_EQ(b.get(i), rounded(dtype, sum))
          << to_string(dtype) << ", element " << i << " of " << n;
    }
    for (Index i = n; i < n + kGuard; ++i) ASSERT_EQ(b.get(i), rounded(dtype, -77)) << "guard";
  }
}

TEST(Reduce, SumsIntoEveryOutput) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32}) {
    for (const Index n : {0, 1, 31, 32, 33, 4096, 5003}) {
      for (const bool streaming : {false, true}) {
        expect_sum(dtype, n, 2, 1, streaming);
        expect_sum(dtype, n, 2, 2, streaming);
        expect_sum(dtype, n, 5, 3, streaming);
        expect_sum(dtype, n, 1, 2, streaming);
      }
    }
  }
}

TEST(Reduce, AnOutputMayBeASource) {
  Buffer a(DType::f32, 1000), b(DType::f32, 1000);
  for (Index i = 0; i < 1000; ++i) a.set(i, static_cast<double>(i)), b.set(i, 1);
  const std::byte* from[] = {a.data(), b.data()};
  reduce_sum(a.data(), from, 2, 1000, DType::f32);
  for (Index i = 0; i < 1000; ++i) ASSERT_EQ(a.get(i), static_cast<double>(i) + 1);
}

TEST(Reduce, SpecialValuesSurvive) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Buffer a(dtype, 64), b(dtype, 64);
    for (Index i = 0; i < 64; ++i) {
      a.set(i, i % 4 == 0 ? std::nan("") : i % 4 == 1 ? kInf : i % 4 == 2 ? -0.0 : 1);
      b.set(i, i % 8 == 1 ? -kInf : i % 4 == 2 ? -0.0 : 2);
    }
    Buffer out(dtype, 64);
    const std::byte* from[] = {a.data(), b.data()};
    reduce_sum(out.data(), from, 2, 64, dtype);
    for (Index i = 0; i < 64; i += 8) {
      EXPECT_TRUE(std::isnan(out.get(i))) << to_string(dtype);      // NaN + 2
      EXPECT_TRUE(std::isnan(out.get(i + 1))) << to_string(dtype);  // inf - inf
      EXPECT_TRUE(std::signbit(out.get(i + 2)));                    // -0 + -0
      EXPECT_EQ(out.get(i + 3), 3);
      EXPECT_EQ(out.get(i + 5), kInf);
    }
  }
}

}  // namespace
}  // namespace weft
