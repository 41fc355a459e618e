// sgd and adam of every backend.
#include "patterns/error.hpp"
#include "tests/kernels_contract.hpp"

namespace weft::test {
namespace {

class OptimizerContract : public KernelContract {};

TEST_P(OptimizerContract, SgdHandNumbers) {
  // The step of the textbook example: learning rate 0.1 times gradient 2.0.
  Matrix w = matrix_of(1, 2, dtype(), {1.0, 0.5}), g = matrix_of(1, 2, dtype(), {2.0, -4.0});
  run({.kind = ComputeKind::sgd, .factor = 0.1}, {&w, &g}, {&w});
  EXPECT_EQ(w.values[0], rounded(0.8, dtype()));
  EXPECT_EQ(w.values[1], rounded(0.9, dtype()));
}

TEST_P(OptimizerContract, SgdWithGradientsInF32) {
  Matrix w = random_matrix(5, 300, dtype(), 1), g = random_matrix(5, 300, DType::f32, 2);
  const Matrix old = w;
  run({.kind = ComputeKind::sgd, .factor = 0.01}, {&w, &g}, {&w});
  expect_all(
      w, [&](Index r, Index c) { return old.at(r, c) - 0.01 * g.at(r, c); }, 2,
      [](Index, Index) { return 1.0; });
}

TEST_P(OptimizerContract, FirstAdamStepIsTheRateWhateverTheGradient) {
  // m = 0.1 g and v = 0.001 g^2 are corrected to g and g^2: the step is rate * g/|g|.
  Matrix w = matrix_of(1, 3, DType::f32, {1, 1, 1}), g = matrix_of(1, 3, dtype(), {0.5, -2, 8});
  Matrix m = matrix_of(1, 3, DType::f32, {0, 0, 0}), v = m;
  run({.kind = ComputeKind::adam, .factor = 0.125, .step = 1}, {&w, &g, &m, &v}, {&w, &m, &v});
  const double expected[] = {0.875, 1.125, 0.875};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(w.values[i], expected[i], 1e-6);
  EXPECT_NEAR(m.values[2], 0.8, 1e-6);
  EXPECT_NEAR(v.values[2], 0.064, 1e-7);
}

TEST_P(OptimizerContract, AdamLaterSteps) {
  Matrix w = random_matrix(3, 400, dtype(), 1), g = random_matrix(3, 400, dtype(), 2);
  Matrix m = random_matrix(3, 400, dtype(), 3), v = random_matrix(3, 400, dtype(), 4);
  for (double& value : v.values) value = std::fabs(value);
  const Matrix w0 = w, m0 = m, v0 = v;
  const int step = 7;
  run({.kind = ComputeKind::adam, .factor = 0.01, .step = step}, {&w, &g, &m, &v}, {&w, &m, &v});
  const auto mean = [&](Index r, Index c) { return 0.9 * m0.at(r, c) + 0.1 * g.at(r, c); };
  const auto square = [&](Index r, Index c) {
    return 0.999 * v0.at(r, c) + 0.001 * g.at(r, c) * g.at(r, c);
  };
  const auto one = [](Index, Index) { return 1.0; };
  expect_all(m, mean, 3, one);
  expect_all(v, square, 3, one);
  expect_all(
      w,
      [&](Index r, Index c) {
        const double corrected = mean(r, c) / (1 - std::pow(0.9, step));
        return w0.at(r, c) -
               0.01 * corrected / (std::sqrt(square(r, c) / (1 - std::pow(0.999, step))) + 1e-8);
      },
      12, one);
}

TEST_P(OptimizerContract, AdamCountsFromOne) {
  Matrix w = random_matrix(1, 2, dtype(), 1), m = w, v = w, g = w;
  EXPECT_THROW(run({.kind = ComputeKind::adam, .step = 0}, {&w, &g, &m, &v}, {&w, &m, &v}), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, OptimizerContract, every_case(), case_name);

}  // namespace
}  // namespace weft::test
