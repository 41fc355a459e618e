// Element-wise operations, operations over rows and reductions of every backend.
#include "patterns/error.hpp"
#include "tests/kernels_contract.hpp"

namespace weft::test {
namespace {

constexpr Index kRows = 3,
                kCols = 1061;  // more than one chunk of conversion, no multiple of a vector

class ElementwiseContract : public KernelContract {
 protected:
  Matrix input(std::uint32_t salt, double scale = 1.0) const {
    return random_matrix(kRows, kCols, dtype(), salt, scale);
  }
  Matrix output() const { return empty_matrix(kRows, kCols, dtype()); }
};

double phi(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double lower_tail(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double one(Index, Index) { return 1.0; }

TEST_P(ElementwiseContract, Bias) {
  Matrix z = input(1), b = random_matrix(1, kCols, dtype(), 2), y = output();
  run({.kind = ComputeKind::bias}, {&z, &b}, {&y}, 2);
  expect_all(
      y, [&](Index r, Index c) { return z.at(r, c) + b.at(0, c); }, 1, one);
}

TEST_P(ElementwiseContract, InPlace) {
  Matrix z = input(1), b = random_matrix(1, kCols, dtype(), 2);
  const Matrix old = z;
  run({.kind = ComputeKind::bias}, {&z, &b}, {&z});
  expect_all(
      z, [&](Index r, Index c) { return old.at(r, c) + b.at(0, c); }, 1, one);
}

TEST_P(ElementwiseContract, WithoutGaps) {
  Matrix x = input(1), z = input(2), y = output();
  x.gap = z.gap = y.gap = 0;
  run({.kind = ComputeKind::add}, {&x, &z}, {&y}, 2);
  expect_all(
      y, [&](Index r, Index c) { return x.at(r, c) + z.at(r, c); }, 1, one);
}

TEST_P(ElementwiseContract, NoRowsAndNoColumns) {
  Matrix none = empty_matrix(0, 4, dtype()), y = empty_matrix(0, 4, dtype()),
         b = random_matrix(1, 4, dtype(), 1);
  run({.kind = ComputeKind::bias}, {&none, &b}, {&y});
  run({.kind = ComputeKind::softmax}, {&none}, {&y});
  run({.kind = ComputeKind::copy}, {&none}, {&y});
  Matrix sum = empty_matrix(1, 4, dtype());
  run({.kind = ComputeKind::column_sum}, {&none}, {&sum});
  EXPECT_EQ(sum.values, std::vector<double>(4, 0.0));
  Matrix narrow = empty_matrix(3, 0, dtype()), out = empty_matrix(3, 0, dtype());
  run({.kind = ComputeKind::add}, {&narrow, &narrow}, {&out});
}

TEST_P(ElementwiseContract, ReluAndIdentity) {
  Matrix z = matrix_of(1, 4, dtype(), {-2, 0, 3, -0.5}), y = empty_matrix(1, 4, dtype());
  run({.kind = ComputeKind::activation, .act = Activation::relu}, {&z}, {&y});
  EXPECT_EQ(y.values, (std::vector<double>{0, 0, 3, 0}));
  run({.kind = ComputeKind::activation, .act = Activation::identity}, {&z}, {&y});
  EXPECT_EQ(y.values, z.values);
  Matrix dy = matrix_of(1, 4, dtype(), {5, 6, 7, 8}), dz = empty_matrix(1, 4, dtype());
  run({.kind = ComputeKind::activation_grad, .act = Activation::relu}, {&dy, &z}, {&dz});
  EXPECT_EQ(dz.values, (std::vector<double>{0, 0, 7, 0}));
  run({.kind = ComputeKind::activation_grad, .act = Activation::identity}, {&dy, &z}, {&dz});
  EXPECT_EQ(dz.values, dy.values);
}

TEST_P(ElementwiseContract, GeluIsTheExactOne) {
  Matrix z = input(1, 8.0), y = output(), dy = input(2), dz = output();
  z.at(0, 0) = 0.0;
  z.at(0, 1) = rounded(60000.0, dtype());
  z.at(0, 2) = rounded(-60000.0, dtype());
  run({.kind = ComputeKind::activation, .act = Activation::gelu}, {&z}, {&y}, 2);
  const auto gelu = [&](Index r, Index c) { return z.at(r, c) * lower_tail(z.at(r, c)); };
  expect_all(y, gelu, 16, [&](Index r, Index c) { return std::fabs(gelu(r, c)); });
  run({.kind = ComputeKind::activation_grad, .act = Activation::gelu}, {&dy, &z}, {&dz}, 2);
  expect_all(
      dz,
      [&](Index r, Index c) {
        return dy.at(r, c) * (lower_tail(z.at(r, c)) + z.at(r, c) * phi(z.at(r, c)));
      },
      16, [&](Index r, Index c) { return std::fabs(dy.at(r, c)); });
}

TEST_P(ElementwiseContract, SwiGlu) {
  Matrix gate = input(1, 9.0), up = input(2), y = output();
  run({.kind = ComputeKind::activation, .act = Activation::swiglu}, {&gate, &up}, {&y}, 2);
  const auto value = [&](Index r, Index c) {
    return gate.at(r, c) * logistic(gate.at(r, c)) * up.at(r, c);
  };
  expect_all(y, value, 10, [&](Index r, Index c) { return std::fabs(value(r, c)); });
}

TEST_P(ElementwiseContract, SwiGluGradient) {
  Matrix dy = input(3), gate = input(1, 9.0), up = input(2), dgate = output(), dup = output();
  run({.kind = ComputeKind::activation_grad, .act = Activation::swiglu}, {&dy, &gate, &up},
      {&dgate, &dup}, 2);
  const auto dgate_at = [&](Index r, Index c) {
    const double g = gate.at(r, c), s = logistic(g);
    return dy.at(r, c) * up.at(r, c) * s * (1 + g * (1 - s));
  };
  expect_all(dgate, dgate_at, 12, [](Index, Index) { return 2.0; });
  expect_all(
      dup, [&](Index r, Index c) { return dy.at(r, c) * gate.at(r, c) * logistic(gate.at(r, c)); },
      12, [&](Index r, Index c) { return std::fabs(dy.at(r, c) * gate.at(r, c)); });
}

TEST_P(ElementwiseContract, NanIsNotHidden) {
  for (const Activation act : {Activation::identity, Activation::relu, Activation::gelu}) {
    Matrix z = empty_matrix(1, 2, dtype()), y = matrix_of(1, 2, dtype(), {1, 1});
    run({.kind = ComputeKind::activation, .act = act}, {&z}, {&y});
    EXPECT_TRUE(std::isnan(y.values[0])) << to_string(act);
  }
  Matrix z = empty_matrix(1, 2, dtype()), u = matrix_of(1, 2, dtype(), {1, 1}), y = u;
  run({.kind = ComputeKind::activation, .act = Activation::swiglu}, {&z, &u}, {&y});
  EXPECT_TRUE(std::isnan(y.values[0]));
  y = u;
  run({.kind = ComputeKind::softmax}, {&z}, {&y});
  EXPECT_TRUE(std::isnan(y.values[0]));
}

TEST_P(ElementwiseContract, Softmax) {
  Matrix x = input(1, 20.0), y = output();
  run({.kind = ComputeKind::softmax}, {&x}, {&y}, 2);
  for (Index r = 0; r < kRows; ++r) {
    double sum = 0;
    for (Index c = 0; c < kCols; ++c) sum += std::exp(x.at(r, c));
    for (Index c = 0; c < kCols; ++c) {
      // The exponent's own rounding, 40 units, counts as relative error of the result.
      const double expected = std::exp(x.at(r, c)) / sum;
      expect_close(y.at(r, c), expected, dtype(), 60, expected, r, c);
    }
  }
}

TEST_P(ElementwiseContract, SoftmaxOfHugeValuesDoesNotOverflow) {
  Matrix x = matrix_of(1, 3, dtype(), {30000, 30000, -30000}), y = empty_matrix(1, 3, dtype());
  run({.kind = ComputeKind::softmax}, {&x}, {&y});
  EXPECT_EQ(y.values, (std::vector<double>{0.5, 0.5, 0}));
}

TEST_P(ElementwiseContract, SoftmaxGradient) {
  Matrix dy = input(1), y = random_matrix(kRows, kCols, dtype(), 2, 0.01), dx = output();
  run({.kind = ComputeKind::softmax_grad}, {&dy, &y}, {&dx}, 2);
  for (Index r = 0; r < kRows; ++r) {
    double sum = 0;
    for (Index c = 0; c < kCols; ++c) sum += dy.at(r, c) * y.at(r, c);
    for (Index c = 0; c < kCols; ++c) {
      expect_close(dx.at(r, c), y.at(r, c) * (dy.at(r, c) - sum), dtype(), 20, 0.05, r, c);
    }
  }
}

TEST_P(ElementwiseContract, LayerNorm) {
  Matrix x = input(1, 3.0), gamma = random_matrix(1, kCols, dtype(), 2),
         beta = random_matrix(1, kCols, dtype(), 3);
  Matrix y = output();
  run({.kind = ComputeKind::layer_norm}, {&x, &gamma, &beta}, {&y}, 2);
  for (Index r = 0; r < kRows; ++r) {
    double mean = 0, square = 0;
    for (Index c = 0; c < kCols; ++c) mean += x.at(r, c) / kCols;
    for (Index c = 0; c < kCols; ++c) square += std::pow(x.at(r, c) - mean, 2) / kCols;
    for (Index c = 0; c < kCols; ++c) {
      const double expected =
          (x.at(r, c) - mean) / std::sqrt(square + 1e-5) * gamma.at(0, c) + beta.at(0, c);
      expect_close(y.at(r, c), expected, dtype(), 40, 2, r, c);
    }
  }
}

TEST_P(ElementwiseContract, ScaleAndCopy) {
  Matrix x = input(1), y = output();
  run({.kind = ComputeKind::scale, .factor = -0.25}, {&x}, {&y}, 2);
  expect_all(
      y, [&](Index r, Index c) { return -0.25 * x.at(r, c); }, 0, one);
  run({.kind = ComputeKind::copy}, {&x}, {&y}, 2);
  EXPECT_EQ(y.values, x.values);
}

TEST_P(ElementwiseContract, CopyConverts) {
  for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
    Matrix x = input(1), y = empty_matrix(kRows, kCols, to);
    run({.kind = ComputeKind::copy}, {&x}, {&y}, 2);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      ASSERT_EQ(y.values[i], rounded(x.values[i], to)) << i;
  }
}

TEST_P(ElementwiseContract, ColumnSum) {
  for (const bool accumulate : {false, true}) {
    const Index rows = 150;
    Matrix x = random_matrix(rows, 37, dtype(), 1);
    Matrix y = accumulate ? random_matrix(1, 37, dtype(), 2) : empty_matrix(1, 37, dtype());
    const Matrix old = y;
    run({.kind = ComputeKind::column_sum, .accumulate = accumulate}, {&x}, {&y},
        accumulate ? 1 : 2);
    expect_all(
        y,
        [&](Index, Index c) {
          double sum = accumulate ? old.at(0, c) : 0.0;
          for (Index r = 0; r < rows; ++r) sum += x.at(r, c);
          return sum;
        },
        20, [](Index, Index) { return 10.0; });
  }
}

TEST_P(ElementwiseContract, ReduceBlocks) {
  for (const DType to : {dtype(), DType::f32}) {
    for (const Index gap : {Index{0}, Index{3}}) {
      const Index blocks = 5;
      Matrix s = random_matrix(blocks * kRows, 700, dtype(), 1), y = empty_matrix(kRows, 700, to);
      s.gap = y.gap = gap;
      run({.kind = ComputeKind::reduce}, {&s}, {&y}, 2);
      expect_all(
          y,
          [&](Index r, Index c) {
            double sum = 0;
            for (Index b = 0; b < blocks; ++b) sum += s.at(b * kRows + r, c);
            return sum;
          },
          5, [](Index, Index) { return 4.0; });
    }
  }
}

TEST_P(ElementwiseContract, RefusesWhatItCannotDo) {
  Matrix x = input(1), narrow = random_matrix(kRows, 4, dtype(), 2), y = output();
  EXPECT_THROW(run({.kind = ComputeKind::add}, {&x, &narrow}, {&y}), Error);
  EXPECT_THROW(run({.kind = ComputeKind::bias}, {&x, &x}, {&y}), Error);
  EXPECT_THROW(run({.kind = ComputeKind::scale, .accumulate = true}, {&x}, {&y}), Error);
  EXPECT_THROW(run({.kind = ComputeKind::reduce}, {&narrow}, {&y}), Error);
  Matrix i = integers_of(1, 2, {1, 2}), o = empty_matrix(1, 2, dtype());
  EXPECT_THROW(run({.kind = ComputeKind::scale}, {&i}, {&o}), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, ElementwiseContract, every_case(), case_name);

// reduce_sum: what communicators call, on host memory.
class ReduceSum : public testing::TestWithParam<DType> {
 protected:
  static std::vector<std::byte> integers(Index n, DType dtype, int salt) {
    std::vector<std::byte> data(static_cast<std::size_t>(n * size_of(dtype)));
    for (Index i = 0; i < n; ++i)
      store_element(data.data(), dtype, i, static_cast<double>((i * 7 + salt * 5) % 31 - 15));
    return data;
  }
};

TEST_P(ReduceSum, AnyNumberOfSourcesExactly) {
  for (const Index n : {Index{0}, Index{1}, Index{17}, Index{5000}}) {
    for (int count = 1; count <= 9; ++count) {
      std::vector<std::vector<std::byte>> data;
      std::vector<const std::byte*> sources;
      for (int k = 0; k < count; ++k) data.push_back(integers(n, GetParam(), k));
      for (const auto& d : data) sources.push_back(d.data());
      std::vector<std::byte> out(static_cast<std::size_t>(n * size_of(GetParam())) + 4,
                                 std::byte{0x5A});
      reduce_sum(out.data(), sources.data(), count, n, GetParam());
      for (Index i = 0; i < n; ++i) {
        double sum = 0;
        for (int k = 0; k < count; ++k) sum += static_cast<double>((i * 7 + k * 5) % 31 - 15);
        ASSERT_EQ(load_element(out.data(), GetParam(), i), sum)
            << i << " of " << n << ", " << count << " sources";
      }
      EXPECT_EQ(out[out.size() - 4], std::byte{0x5A}) << "wrote past the end";
    }
  }
}

TEST_P(ReduceSum, OutMayBeAnySource) {
  const Index n = 2500;
  for (int into = 0; into < 6; ++into) {
    std::vector<std::vector<std::byte>> data;
    std::vector<const std::byte*> sources;
    for (int k = 0; k < 6; ++k) data.push_back(integers(n, GetParam(), k));
    for (const auto& d : data) sources.push_back(d.data());
    reduce_sum(data[static_cast<std::size_t>(into)].data(), sources.data(), 6, n, GetParam());
    for (Index i = 0; i < n; ++i) {
      double sum = 0;
      for (int k = 0; k < 6; ++k) sum += static_cast<double>((i * 7 + k * 5) % 31 - 15);
      ASSERT_EQ(load_element(data[static_cast<std::size_t>(into)].data(), GetParam(), i), sum)
          << i << " into " << into;
    }
  }
}

TEST_P(ReduceSum, NoSourcesGiveZero) {
  auto out = integers(9, GetParam(), 1);
  reduce_sum(out.data(), nullptr, 0, 9, GetParam());
  for (Index i = 0; i < 9; ++i) EXPECT_EQ(load_element(out.data(), GetParam(), i), 0.0);
}

TEST(ReduceSumOnce, RoundsOnceOnly) {
  // 256 + 1 + 1: rounded to bf16 after each addition it would stay 256.
  std::byte a[2], b[2], c[2], out[2];
  store_element(a, DType::bf16, 0, 256);
  store_element(b, DType::bf16, 0, 1);
  store_element(c, DType::bf16, 0, 1);
  const std::byte* sources[] = {a, b, c};
  reduce_sum(out, sources, 3, 1, DType::bf16);
  EXPECT_EQ(load_element(out, DType::bf16, 0), 258.0);
}

INSTANTIATE_TEST_SUITE_P(Every, ReduceSum,
                         testing::Values(DType::f32, DType::bf16, DType::f16, DType::i32),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace weft::test
