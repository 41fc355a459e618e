// Routing, permutation and block layouts of every backend.
#include <numeric>

#include "patterns/error.hpp"
#include "tests/kernels_contract.hpp"

namespace weft::test {
namespace {

class MoeContract : public KernelContract {};

double one(Index, Index) { return 1.0; }

// 4 tokens, 3 experts, 2 choices. By expert, then token, then choice the selections lie in rows:
//   expert 0: token 0 choice 1, token 2 choice 0, token 3 choice 1    rows 0 1 2
//   expert 1: token 3 choice 0                                        row  3
//   expert 2: token 0 choice 0, token 1 both choices, token 2 choice 1  rows 4 5 6 7
// (Choosing an expert twice does not happen with top_k, but shows the order.)
Matrix choices() { return integers_of(4, 2, {2, 0, 2, 2, 0, 2, 1, 0}); }
constexpr Index kRow[4][2] = {{4, 0}, {5, 6}, {1, 7}, {3, 2}};

TEST_P(MoeContract, TopKHandNumbers) {
  Matrix p = matrix_of(3, 4, dtype(),
                       {0.125, 0.5, 0.25, 0.125, 0.25, 0.25, 0.25, 0.25, 0, 0.125, 0.125, 0.75});
  Matrix index = integers_of(3, 2, std::vector<double>(6)), w = empty_matrix(3, 2, dtype());
  run({.kind = ComputeKind::top_k, .experts = 4}, {&p}, {&index, &w}, 2);
  EXPECT_EQ(index.values, (std::vector<double>{1, 2, 0, 1, 3, 1}))
      << "ties go to the smaller index";
  EXPECT_EQ(w.values, (std::vector<double>{0.5, 0.25, 0.25, 0.25, 0.75, 0.125}));
  run({.kind = ComputeKind::top_k, .normalize = true, .experts = 4}, {&p}, {&index, &w}, 2);
  for (Index t = 0; t < 3; ++t)
    EXPECT_NEAR(w.at(t, 0) + w.at(t, 1), 1.0, 2 * unit_roundoff(dtype()));
  EXPECT_EQ(w.at(0, 0), rounded(2.0 / 3.0, dtype()));
}

TEST_P(MoeContract, TopKOfAllIsASort) {
  Matrix p = random_matrix(5, 9, dtype(), 1);
  Matrix index = integers_of(5, 9, std::vector<double>(45)), w = empty_matrix(5, 9, dtype());
  run({.kind = ComputeKind::top_k, .experts = 9}, {&p}, {&index, &w});
  for (Index t = 0; t < 5; ++t) {
    for (Index c = 0; c < 9; ++c) {
      EXPECT_EQ(w.at(t, c), p.at(t, static_cast<Index>(index.at(t, c))));
      EXPECT_LE(w.at(t, c), w.at(t, std::max<Index>(c - 1, 0)));
    }
  }
}

TEST_P(MoeContract, TopKOfNanStillNamesExperts) {
  Matrix p = empty_matrix(1, 3, dtype()), w = empty_matrix(1, 2, dtype());
  Matrix index = integers_of(1, 2, {-1, -1});
  run({.kind = ComputeKind::top_k, .experts = 3}, {&p}, {&index, &w});
  EXPECT_EQ(index.values, (std::vector<double>{0, 1}));
}

TEST_P(MoeContract, TopKGradient) {
  Matrix p = random_matrix(4, 3, dtype(), 1, 0.5), dw = random_matrix(4, 2, dtype(), 2);
  for (double& value : p.values) value = rounded(std::fabs(value) + 0.25, dtype());
  Matrix index = integers_of(4, 2, {2, 0, 1, 2, 0, 1, 1, 0});
  for (const bool normalize : {false, true}) {
    Matrix dp = empty_matrix(4, 3, dtype());
    run({.kind = ComputeKind::top_k_grad, .normalize = normalize, .experts = 3}, {&dw, &index, &p},
        {&dp}, 2);
    // Derivative of sum_c dW_c W_c(P) along each P, from the values of the function itself.
    const auto loss = [&](Index t, Index moved, double by) {
      double sum = 0, total = 0;
      for (Index c = 0; c < 2; ++c) {
        const auto e = static_cast<Index>(index.at(t, c));
        const double value = p.at(t, e) + (e == moved ? by : 0.0);
        sum += dw.at(t, c) * value;
        total += value;
      }
      return normalize ? sum / total : sum;
    };
    const double h = 1e-5;
    expect_all(
        dp, [&](Index t, Index e) { return (loss(t, e, h) - loss(t, e, -h)) / (2 * h); }, 30,
        [](Index, Index) { return 2.0; });
  }
}

TEST_P(MoeContract, CountTokens) {
  Matrix index = choices(), counts = integers_of(1, 3, {9, 9, 9});
  run({.kind = ComputeKind::count_tokens, .experts = 3}, {&index}, {&counts}, 2);
  EXPECT_EQ(counts.values, (std::vector<double>{3, 1, 4}));
}

TEST_P(MoeContract, PermuteAndItsAdjoint) {
  const Index h = 6;
  Matrix x = random_matrix(4, h, dtype(), 1), index = choices(), s = empty_matrix(8, h, dtype());
  run({.kind = ComputeKind::permute, .experts = 3}, {&x, &index}, {&s}, 2);
  for (Index t = 0; t < 4; ++t) {
    for (const Index row : kRow[t]) {
      for (Index i = 0; i < h; ++i) EXPECT_EQ(s.at(row, i), x.at(t, i));
    }
  }
  Matrix ds = random_matrix(8, h, dtype(), 2);
  for (const bool accumulate : {false, true}) {
    Matrix dx = accumulate ? random_matrix(4, h, dtype(), 3) : empty_matrix(4, h, dtype());
    const Matrix old = dx;
    run({.kind = ComputeKind::permute_grad, .accumulate = accumulate, .experts = 3}, {&ds, &index},
        {&dx});
    expect_all(
        dx,
        [&](Index t, Index i) {
          return (accumulate ? old.at(t, i) : 0.0) + ds.at(kRow[t][0], i) + ds.at(kRow[t][1], i);
        },
        3, one);
  }
}

TEST_P(MoeContract, UnpermuteAndItsAdjoint) {
  const Index h = 1030;
  Matrix s = random_matrix(8, h, dtype(), 1), index = choices(),
         w = random_matrix(4, 2, dtype(), 2);
  Matrix y = empty_matrix(4, h, dtype());
  run({.kind = ComputeKind::unpermute, .experts = 3}, {&s, &index, &w}, {&y}, 2);
  expect_all(
      y,
      [&](Index t, Index i) {
        return w.at(t, 0) * s.at(kRow[t][0], i) + w.at(t, 1) * s.at(kRow[t][1], i);
      },
      3, one);
  Matrix dy = random_matrix(4, h, dtype(), 3), ds = empty_matrix(8, h, dtype()),
         dw = empty_matrix(4, 2, dtype());
  run({.kind = ComputeKind::unpermute_grad, .experts = 3}, {&dy, &s, &index, &w}, {&ds, &dw}, 2);
  for (Index t = 0; t < 4; ++t) {
    for (Index c = 0; c < 2; ++c) {
      double dot = 0;
      for (Index i = 0; i < h; ++i) {
        dot += dy.at(t, i) * s.at(kRow[t][c], i);
        expect_close(ds.at(kRow[t][c], i), w.at(t, c) * dy.at(t, i), dtype(), 1, 1, t, i);
      }
      expect_close(dw.at(t, c), dot, dtype(), 60, 20, t, c);
    }
  }
}

TEST_P(MoeContract, AnIndexThatIsNoExpertIsRefused) {
  Matrix x = random_matrix(1, 2, dtype(), 1), s = empty_matrix(1, 2, dtype());
  for (const double expert : {3.0, -1.0}) {
    Matrix index = integers_of(1, 1, {expert}), counts = integers_of(1, 3, {0, 0, 0});
    EXPECT_THROW(run({.kind = ComputeKind::permute, .experts = 3}, {&x, &index}, {&s}), Error);
    EXPECT_THROW(run({.kind = ComputeKind::count_tokens, .experts = 3}, {&index}, {&counts}),
                 Error);
  }
  Matrix index = integers_of(1, 1, {0});
  EXPECT_THROW(run({.kind = ComputeKind::permute}, {&x, &index}, {&s}), Error)
      << "experts are not given";
}

TEST_P(MoeContract, RelayoutAndSplitAreInverse) {
  // Blocks of widths 2, 0 and 3 over 2 rows: the first is 1 2 / 3 4, the last 5 6 7 / 8 9 10.
  Matrix blocks = matrix_of(1, 10, dtype(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  Matrix y = empty_matrix(2, 5, dtype()), back = empty_matrix(1, 10, dtype());
  run({.kind = ComputeKind::relayout, .counts = {2, 0, 3}}, {&blocks}, {&y}, 2);
  EXPECT_EQ(y.values, (std::vector<double>{1, 2, 5, 6, 7, 3, 4, 8, 9, 10}));
  run({.kind = ComputeKind::split_layout, .counts = {2, 0, 3}}, {&y}, {&back}, 2);
  EXPECT_EQ(back.values, blocks.values);
  EXPECT_THROW(run({.kind = ComputeKind::relayout, .counts = {2, 2}}, {&blocks}, {&y}), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, MoeContract, every_case(), case_name);

}  // namespace
}  // namespace weft::test
