// The bounds of the reference: they hold for computations that really round (simulated here,
// naively, in several orders), and errors that matter exceed them.
#include <algorithm>
#include <limits>

#include "kernels_reference.hpp"

namespace weft {
namespace {

using namespace reference_test;

/// How an f32 implementation may add up.
enum class Order { ascending, descending, lanes };

float float_sum(const std::vector<float>& terms, Order order) {
  float sum = 0;
  if (order == Order::ascending) {
    for (std::size_t i = 0; i < terms.size(); ++i) sum += terms[i];
  } else if (order == Order::descending) {
    for (std::size_t i = terms.size(); i-- > 0;) sum += terms[i];
  } else {
    std::vector<float> lanes(16, 0.0f);
    for (std::size_t i = 0; i < terms.size(); ++i) lanes[i % 16] += terms[i];
    for (float lane : lanes) sum += lane;
  }
  return sum;
}

/// Products rounded apart from the sum: more roundings than a fused multiply-add makes.
Matrix float_gemm(const Matrix& a, const Matrix& b, Order order) {
  Matrix c(a.rows, b.cols);
  std::vector<float> terms(static_cast<std::size_t>(a.cols));
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < b.cols; ++j) {
      for (Index k = 0; k < a.cols; ++k) {
        terms[static_cast<std::size_t>(k)] =
            static_cast<float>(a(i, k)) * static_cast<float>(b(k, j));
      }
      c(i, j) = static_cast<double>(float_sum(terms, order));
    }
  }
  return c;
}

Matrix mapped(Matrix m, const std::function<double(double)>& f) {
  for (double& x : m.data) x = f(x);
  return m;
}
Matrix stored(const Matrix& m, DType dtype) {
  return mapped(m, [&](double x) { return reference_test::stored(x, dtype); });
}

/// Largest |actual - value| / bound; no element may exceed 1.
double strain(const TestProgram& p, const View& view, const Matrix& actual) {
  Reference reference(p.program, kSeed);
  const Matrix value = p.values(reference, view), bound = p.bounds(reference, view);
  double worst = 0;
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    const double error = std::fabs(actual.data[i] - value.data[i]);
    if (error > 0) worst = std::max(worst, error / bound.data[i]);
  }
  return worst;
}

Compute op(ComputeKind kind, std::vector<View> in, std::vector<View> out) {
  return {.kind = kind, .in = std::move(in), .out = std::move(out)};
}

struct Case {
  DType dtype;
  Index k;
  Fill fill;
};

class GemmBounds : public testing::TestWithParam<Case> {};

TEST_P(GemmBounds, HoldInAnyOrderAndAreNotIdle) {
  const auto [dtype, k, fill] = GetParam();
  TestProgram p;
  p.dtype = dtype;
  const View a = p.input("A", 40, k, 1.0, fill), b = p.input("B", k, 50, 1.0, fill);
  const View c = p.output("C", 40, 50);
  p.then(op(ComputeKind::gemm, {a, b}, {c}));
  double used = 0;
  for (const Order order : {Order::ascending, Order::descending, Order::lanes}) {
    const Matrix actual = stored(float_gemm(p.data(a), p.data(b), order), dtype);
    used = std::max(used, strain(p, c, actual));
  }
  EXPECT_LE(used, 1.0);
  EXPECT_GE(used, 0.3);
}

INSTANTIATE_TEST_SUITE_P(
    All, GemmBounds,
    testing::Values(Case{DType::f32, 1, Fill::uniform}, Case{DType::f32, 3, Fill::uniform},
                    Case{DType::f32, 64, Fill::uniform}, Case{DType::f32, 64, Fill::positive},
                    Case{DType::f32, 700, Fill::uniform}, Case{DType::f32, 700, Fill::positive},
                    Case{DType::bf16, 64, Fill::uniform}, Case{DType::bf16, 700, Fill::positive},
                    Case{DType::f16, 64, Fill::uniform}, Case{DType::f16, 300, Fill::positive}));

/// Equal terms round alike: no cancellation of errors may be hoped for.
TEST(ReferenceBounds, HoldForEqualTerms) {
  TestProgram p;
  const View a = p.input("A", 2, 4000, 0.1, Fill::constant),
             b = p.input("B", 4000, 3, 0.7, Fill::constant);
  const View c = p.output("C", 2, 3);
  p.then(op(ComputeKind::gemm, {a, b}, {c}));
  const double used = strain(p, c, float_gemm(p.data(a), p.data(b), Order::ascending));
  EXPECT_LE(used, 1.0);
  EXPECT_GE(used, 0.001);
}

// ---- What must be seen -------------------------------------------------------------------------

/// The distance to the next float of this magnitude.
double ulp(double x) {
  const float at = static_cast<float>(std::fabs(x));
  return static_cast<double>(std::nextafter(at, std::numeric_limits<float>::infinity()) - at);
}

struct Gemm64 : TestProgram {
  View a, b, c;
  explicit Gemm64(DType type, int ways = 1) {
    dtype = type;
    a = input("A", 64, 64);
    b = input("B", 64, 64);
    c = output("C", 64, 64);
    then({.kind = ComputeKind::gemm, .in = {a, b}, .out = {c}, .ways = ways});
  }
};

TEST(ReferenceBounds, EightUlpOfTheLargestElementAreSeenInNearlyEveryElement) {
  const Gemm64 p(DType::f32);
  Reference reference(p.program, kSeed);
  const Matrix value = p.values(reference, p.c), bound = p.bounds(reference, p.c);
  const Matrix actual = float_gemm(p.data(p.a), p.data(p.b), Order::ascending);
  double largest = 0;
  for (double x : value.data) largest = std::max(largest, std::fabs(x));
  int missed = 0;
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    for (double corruption : {8 * ulp(largest), -8 * ulp(largest)}) {
      missed += std::fabs(actual.data[i] + corruption - value.data[i]) <= bound.data[i];
    }
  }
  EXPECT_LE(missed, 64 * 64 * 2 / 100);
}

TEST(ReferenceBounds, SixteenOwnUlpAreSeenInMostElementsOfUsualSize) {
  const Gemm64 p(DType::f32);
  Reference reference(p.program, kSeed);
  const Matrix value = p.values(reference, p.c), bound = p.bounds(reference, p.c);
  int considered = 0, seen = 0;
  for (std::size_t i = 0; i < value.data.size(); ++i) {
    if (std::fabs(value.data[i]) < 8.0 / 3) continue;  // sqrt(64)/3: the usual size
    ++considered;
    seen += 16 * ulp(value.data[i]) > bound.data[i];
    EXPECT_GT(32 * ulp(value.data[i]), bound.data[i]) << value.data[i];
  }
  EXPECT_GT(considered, 1000);
  EXPECT_GT(seen, considered * 8 / 10);
}

TEST(ReferenceBounds, OneUlpOfHalfPrecisionIsSeenInNearlyEveryElement) {
  for (const auto& [dtype, unit] :
       {std::pair{DType::bf16, 0x1p-7}, std::pair{DType::f16, 0x1p-10}}) {
    const Gemm64 p(dtype);
    Reference reference(p.program, kSeed);
    const Matrix value = p.values(reference, p.c), bound = p.bounds(reference, p.c);
    const Matrix good = stored(float_gemm(p.data(p.a), p.data(p.b), Order::ascending), dtype);
    int missed = 0;
    for (std::size_t i = 0; i < value.data.size(); ++i) {
      const double step = unit * std::exp2(std::floor(std::log2(std::fabs(good.data[i]))));
      for (double flip : {step, -step}) {
        missed += std::fabs(good.data[i] + flip - value.data[i]) <= bound.data[i];
      }
    }
    EXPECT_LE(missed, static_cast<int>(value.data.size()) / 50);
  }
}

TEST(ReferenceBounds, AllowForPartialSumsThatAreStoredAndReduced) {
  for (const int ways : {2, 4, 8}) {
    const Gemm64 p(DType::bf16, ways);
    const Matrix a = p.data(p.a), b = p.data(p.b);
    Matrix total(64, 64);
    for (int w = 0; w < ways; ++w) {
      const Index part = 64 / ways;
      Matrix left(64, part), right(part, 64);
      for (Index i = 0; i < 64; ++i) {
        for (Index k = 0; k < part; ++k) {
          left(i, k) = a(i, w * part + k);
          right(k, i) = b(w * part + k, i);
        }
      }
      const Matrix partial = stored(float_gemm(left, right, Order::ascending), DType::bf16);
      for (std::size_t i = 0; i < total.data.size(); ++i) total.data[i] += partial.data[i];
      total = stored(total, DType::bf16);  // as a ring does at every hop
    }
    const double used = strain(p, p.c, total);
    EXPECT_LE(used, 1.0);
    EXPECT_GE(used, 0.1);
    EXPECT_GT(strain(Gemm64(DType::bf16), p.c, total), 1.0);  // and `ways` is what allows it
  }
}

// ---- Through layers ----------------------------------------------------------------------------

double gelu(double x) {
  const float at = static_cast<float>(x);
  return 0.5f * at * (1.0f + std::erf(at * 0.70710678f));
}

/// A bound that added absolute values would have grown to 1e5 times the error here.
TEST(ReferenceBounds, StayUsefulThroughTwelveLayers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TestProgram p;
    p.dtype = dtype;
    View x = p.input("X", 16, 64);
    Matrix actual = p.data(x);
    const char* names[] = {"W0", "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "Wa", "Wb"};
    for (const char* name : names) {
      const View w = p.input(name, 64, 64, 0.35), z = p.output("Z", 16, 64);
      const View y = p.output(name[1] == 'b' ? "Y" : "H", 16, 64);
      p.then(op(ComputeKind::gemm, {x, w}, {z}));
      p.then({.kind = ComputeKind::activation, .in = {z}, .out = {y}, .act = Activation::gelu});
      actual = stored(float_gemm(actual, p.data(w), Order::lanes), dtype);
      actual = stored(mapped(actual, gelu), dtype);
      x = y;
    }
    const double used = strain(p, x, actual);
    EXPECT_LE(used, 1.0);
    EXPECT_GE(used, 0.05);
  }
}

TEST(ReferenceBounds, HoldForRowOperationsAndBackward) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TestProgram p;
    p.dtype = dtype;
    const Index rows = 30, n = 48;
    const View a = p.input("A", rows, n), b = p.input("B", n, n), gamma = p.input("gamma", 1, n);
    const View beta = p.input("beta", 1, n), dy = p.input("dY", rows, n);
    const View z = p.output("Z", rows, n), norm = p.output("N", rows, n),
               soft = p.output("P", rows, n);
    const View dsoft = p.output("dN", rows, n), sums = p.output("sums", 1, n);
    p.then(op(ComputeKind::gemm, {a, b}, {z}));
    p.then(op(ComputeKind::layer_norm, {z, gamma, beta}, {norm}));
    p.then(op(ComputeKind::softmax, {norm}, {soft}));
    p.then(op(ComputeKind::softmax_grad, {dy, soft}, {dsoft}));
    p.then(op(ComputeKind::column_sum, {dsoft}, {sums}));
    const Matrix x = stored(float_gemm(p.data(a), p.data(b), Order::ascending), dtype);
    const Matrix g = p.data(gamma), be = p.data(beta), d = p.data(dy);
    Matrix nx(rows, n), sx(rows, n), dx(rows, n), sum(1, n);
    for (Index r = 0; r < rows; ++r) {
      float mean = 0, variance = 0, total = 0, dot = 0, top = -1e30f;
      for (Index c = 0; c < n; ++c) mean += static_cast<float>(x(r, c)) / n;
      for (Index c = 0; c < n; ++c) {
        variance += (static_cast<float>(x(r, c)) - mean) * (static_cast<float>(x(r, c)) - mean) / n;
      }
      for (Index c = 0; c < n; ++c) {
        const float hat = (static_cast<float>(x(r, c)) - mean) / std::sqrt(variance + 1e-5f);
        nx(r, c) = hat * static_cast<float>(g(0, c)) + static_cast<float>(be(0, c));
        nx(r, c) = reference_test::stored(nx(r, c), dtype);
        top = std::max(top, static_cast<float>(nx(r, c)));
      }
      for (Index c = 0; c < n; ++c) total += std::exp(static_cast<float>(nx(r, c)) - top);
      for (Index c = 0; c < n; ++c) {
        const float e = std::exp(static_cast<float>(nx(r, c)) - top) / total;
        sx(r, c) = reference_test::stored(static_cast<double>(e), dtype);
        dot += static_cast<float>(d(r, c)) * static_cast<float>(sx(r, c));
      }
      for (Index c = 0; c < n; ++c) {
        const float grad = static_cast<float>(sx(r, c)) * (static_cast<float>(d(r, c)) - dot);
        dx(r, c) = reference_test::stored(static_cast<double>(grad), dtype);
      }
    }
    for (Index c = 0; c < n; ++c) {
      std::vector<float> terms;
      for (Index r = 0; r < rows; ++r) terms.push_back(static_cast<float>(dx(r, c)));
      sum(0, c) =
          reference_test::stored(static_cast<double>(float_sum(terms, Order::lanes)), dtype);
    }
    for (const auto& [view, actual] : {std::pair{norm, nx}, {soft, sx}, {dsoft, dx}, {sums, sum}}) {
      const double used = strain(p, view, actual);
      EXPECT_LE(used, 1.0) << p.tensor(view).name;
      EXPECT_GE(used, 0.05) << p.tensor(view).name;
    }
  }
}

/// Adam's step is steep near zero gradients: its sign may turn within the error of the gradient.
TEST(ReferenceBounds, HoldForAdamWhereTheGradientCancels) {
  TestProgram p;
  const View a = p.input("A", 64, 200), b = p.input("B", 200, 64), g = p.output("g", 64, 64);
  const View w = p.input("W", 64, 64), m = p.input("m", 64, 64, 0, Fill::zero);
  const View v = p.input("v", 64, 64, 0, Fill::zero);
  p.then(op(ComputeKind::gemm, {a, b}, {g}));
  p.then({.kind = ComputeKind::adam, .in = {w, g, m, v}, .out = {w, m, v}, .factor = 0.5});
  const Matrix gradient = float_gemm(p.data(a), p.data(b), Order::descending);
  Matrix actual = p.data(w), square(64, 64);
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    const float at = static_cast<float>(gradient.data[i]);
    const float mean = 0.1f * at, squares = 0.001f * at * at;
    const float step = 0.5f * (mean / 0.1f) / (std::sqrt(squares / 0.001f) + 1e-8f);
    actual.data[i] = static_cast<double>(static_cast<float>(actual.data[i]) - step);
    square.data[i] = static_cast<double>(squares);
  }
  EXPECT_LE(strain(p, w, actual), 1.0);
  EXPECT_GE(strain(p, w, actual), 0.05);
  EXPECT_LE(strain(p, v, square), 1.0);
}

TEST(ReferenceBounds, ReluMayOpenOrCloseWithinTheErrorOnly) {
  TestProgram p;
  p.dtype = DType::bf16;
  const View a = p.input("A", 64, 64), b = p.input("B", 64, 64), z = p.output("Z", 64, 64);
  const View dy = p.input("dY", 64, 64), dz = p.output("dZ", 64, 64);
  p.then(op(ComputeKind::gemm, {a, b}, {z}));
  p.then(
      {.kind = ComputeKind::activation_grad, .in = {dy, z}, .out = {dz}, .act = Activation::relu});
  Reference reference(p.program, kSeed);
  const Matrix zs = p.values(reference, z), zb = p.bounds(reference, z);
  const Matrix bound = p.bounds(reference, dz), d = p.data(dy);
  int uncertain = 0;
  for (std::size_t i = 0; i < zs.data.size(); ++i) {
    const bool near = std::fabs(zs.data[i]) <= zb.data[i];
    uncertain += near;
    EXPECT_EQ(bound.data[i] >= std::fabs(d.data[i]) && d.data[i] != 0, near && d.data[i] != 0);
  }
  EXPECT_LT(uncertain, 5);
}

}  // namespace
}  // namespace weft
