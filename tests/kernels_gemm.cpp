// gemm, grouped_gemm, grouped_wgrad of every backend.
#include <numeric>

#include "patterns/error.hpp"
#include "tests/kernels_contract.hpp"

namespace weft::test {
namespace {

class GemmContract : public KernelContract {
 protected:
  static double operand(const Matrix& m, bool transposed, Index r, Index c) {
    return transposed ? m.at(c, r) : m.at(r, c);
  }

  /// Runs C (+)= op(A) op(B) and compares it with sums in double.
  void check(Index m, Index n, Index k, bool ta, bool tb, bool accumulate, DType in_type,
             DType out_type) {
    SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " ta " << ta << " tb " << tb
                                    << " acc " << accumulate);
    Matrix a = ta ? random_matrix(k, m, in_type, 1) : random_matrix(m, k, in_type, 1);
    Matrix b = tb ? random_matrix(n, k, in_type, 2) : random_matrix(k, n, in_type, 2);
    Matrix c = accumulate ? random_matrix(m, n, out_type, 3) : empty_matrix(m, n, out_type);
    const Matrix old = c;
    Compute op{.kind = ComputeKind::gemm, .trans_a = ta, .trans_b = tb, .accumulate = accumulate};
    run(op, {&a, &b}, {&c}, accumulate ? 1 : 2);
    const auto sum = [&](Index r, Index col, auto term) {
      double total = accumulate ? term(old.at(r, col)) : 0.0;
      for (Index i = 0; i < k; ++i) total += term(operand(a, ta, r, i) * operand(b, tb, i, col));
      return total;
    };
    expect_all(
        c, [&](Index r, Index col) { return sum(r, col, [](double x) { return x; }); },
        2.0 * std::sqrt(static_cast<double>(k) + 2.0),
        [&](Index r, Index col) { return sum(r, col, [](double x) { return std::fabs(x); }); });
  }
};

TEST_P(GemmContract, HandNumbers) {
  Matrix a = matrix_of(2, 3, dtype(), {1, 2, 3, 4, 5, 6});
  Matrix b = matrix_of(3, 2, dtype(), {1, 0, 0, 1, 2, -1});
  Matrix c = empty_matrix(2, 2, dtype());
  run({.kind = ComputeKind::gemm}, {&a, &b}, {&c});
  EXPECT_EQ(c.values, (std::vector<double>{7, -1, 16, -1}));
}

TEST_P(GemmContract, EveryTransposeAndAccumulate) {
  for (int flags = 0; flags < 8; ++flags) {
    check(7, 13, 29, flags & 1, flags & 2, flags & 4, dtype(), dtype());
    check(1, 1, 1, flags & 1, flags & 2, flags & 4, dtype(), dtype());
  }
}

TEST_P(GemmContract, InputsAndOutputsOfDifferentTypes) {
  for (int flags = 0; flags < 8; ++flags)
    check(5, 9, 17, flags & 1, flags & 2, flags & 4, dtype(), DType::f32);
  check(5, 9, 17, false, false, true, DType::f32, dtype());
}

TEST_P(GemmContract, SizesBeyondATileOfConversion) {
  check(3, 1030, 1100, false, false, true, dtype(), dtype());
  check(1025, 2, 1025, true, true, false, dtype(), dtype());
}

TEST_P(GemmContract, AnEmptySumIsZeroOrWhatWasThere) {
  Matrix a = empty_matrix(2, 0, dtype()), b = empty_matrix(0, 3, dtype());
  Matrix c = empty_matrix(2, 3, dtype());
  run({.kind = ComputeKind::gemm}, {&a, &b}, {&c});
  EXPECT_EQ(c.values, std::vector<double>(6, 0.0));
  Matrix kept = matrix_of(2, 3, dtype(), {1, 2, 3, 4, 5, 6});
  run({.kind = ComputeKind::gemm, .accumulate = true}, {&a, &b}, {&kept});
  EXPECT_EQ(kept.values, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  Matrix none = empty_matrix(0, 3, dtype()), rows = empty_matrix(0, 2, dtype());
  Matrix full = random_matrix(2, 3, dtype(), 1);
  run({.kind = ComputeKind::gemm}, {&rows, &full}, {&none});
}

TEST_P(GemmContract, RefusesShapesThatDoNotFit) {
  Matrix a = random_matrix(2, 3, dtype(), 1), b = random_matrix(4, 2, dtype(), 2),
         c = empty_matrix(2, 2, dtype());
  EXPECT_THROW(run({.kind = ComputeKind::gemm}, {&a, &b}, {&c}), Error);
  EXPECT_THROW(run({.kind = ComputeKind::gemm}, {&a}, {&c}), Error);
  Matrix i = integers_of(3, 2, {1, 2, 3, 4, 5, 6});
  EXPECT_THROW(run({.kind = ComputeKind::gemm}, {&a, &i}, {&c}), Error);
}

// 2 experts, 6 segments: segment s is expert s % 2. Rows 0-2 | none | row 3 | rows 4-5 | none | row
// 6; row 7 is unused.
struct Grouping {
  std::vector<double> counts{3, 0, 1, 2, 0, 1};
  std::vector<int> expert_of_row{0, 0, 0, 0, 1, 1, 1};
  Index capacity = 8;
};

TEST_P(GemmContract, GroupedGemmTakesTheExpertOfEachSegment) {
  const Grouping g;
  for (const bool transposed : {false, true}) {
    const Index k = 5, n = 4;
    Matrix a = random_matrix(g.capacity, k, dtype(), 1);
    Matrix b =
        transposed ? random_matrix(2 * n, k, dtype(), 2) : random_matrix(2 * k, n, dtype(), 2);
    Matrix counts = integers_of(1, 6, g.counts);
    Matrix c = empty_matrix(g.capacity, n, dtype());
    run({.kind = ComputeKind::grouped_gemm, .trans_b = transposed, .experts = 2}, {&a, &b, &counts},
        {&c}, 2);
    for (Index r = 0; r < 7; ++r) {
      const Index e = g.expert_of_row[static_cast<std::size_t>(r)];
      for (Index col = 0; col < n; ++col) {
        double sum = 0;
        for (Index i = 0; i < k; ++i)
          sum += a.at(r, i) * (transposed ? b.at(e * n + col, i) : b.at(e * k + i, col));
        expect_close(c.at(r, col), sum, dtype(), 8, 5, r, col);
      }
    }
    for (Index col = 0; col < n; ++col)
      EXPECT_TRUE(std::isnan(c.at(7, col))) << "beyond the last segment";
  }
}

TEST_P(GemmContract, GroupedWgradSumsTheSegmentsOfAnExpert) {
  const Grouping g;
  for (const bool accumulate : {false, true}) {
    const Index k = 3, n = 4;
    Matrix a = random_matrix(g.capacity, k, dtype(), 1),
           d = random_matrix(g.capacity, n, dtype(), 2);
    Matrix counts = integers_of(1, 6, g.counts);
    Matrix grad =
        accumulate ? random_matrix(2 * k, n, dtype(), 3) : empty_matrix(2 * k, n, dtype());
    const Matrix old = grad;
    run({.kind = ComputeKind::grouped_wgrad, .accumulate = accumulate, .experts = 2},
        {&a, &d, &counts}, {&grad}, accumulate ? 1 : 2);
    expect_all(
        grad,
        [&](Index r, Index col) {
          double sum = accumulate ? old.at(r, col) : 0.0;
          for (Index row = 0; row < 7; ++row) {
            if (g.expert_of_row[static_cast<std::size_t>(row)] == r / k)
              sum += a.at(row, r % k) * d.at(row, col);
          }
          return sum;
        },
        8, [](Index, Index) { return 5.0; });
  }
}

TEST_P(GemmContract, AnExpertWithoutTokensHasNoGradient) {
  Matrix a = random_matrix(2, 3, dtype(), 1), d = random_matrix(2, 2, dtype(), 2);
  Matrix counts = integers_of(1, 2, {0, 0});
  Matrix grad = empty_matrix(6, 2, dtype());
  run({.kind = ComputeKind::grouped_wgrad, .experts = 2}, {&a, &d, &counts}, {&grad});
  EXPECT_EQ(grad.values, std::vector<double>(12, 0.0));
}

TEST_P(GemmContract, CountsThatExceedTheCapacityAreRefused) {
  Matrix a = random_matrix(2, 3, dtype(), 1), b = random_matrix(3, 2, dtype(), 2),
         c = empty_matrix(2, 2, dtype());
  const Compute op{.kind = ComputeKind::grouped_gemm, .experts = 1};
  for (const double count : {3.0, -1.0}) {
    Matrix counts = integers_of(1, 1, {count});
    EXPECT_THROW(run(op, {&a, &b, &counts}, {&c}), Error);
  }
}

TEST_P(GemmContract, SaysWhoItIs) {
  EXPECT_EQ(backend().name(), std::get<0>(GetParam()).name);
  backend().set_threads(1);
  EXPECT_FALSE(backend().description().empty());
  EXPECT_THROW(backend().set_threads(0), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, GemmContract, every_case(), case_name);

TEST(HostBackend, DescriptionNamesLibraryAndThreads) {
  const auto backend = make_host_backend();
  backend->set_threads(2);
  EXPECT_TRUE(backend->description().starts_with("OpenBLAS 0.")) << backend->description();
  EXPECT_TRUE(backend->description().ends_with(", 2 threads")) << backend->description();
  backend->set_threads(1);
  EXPECT_TRUE(backend->description().ends_with(", 1 thread")) << backend->description();
}

}  // namespace
}  // namespace weft::test
