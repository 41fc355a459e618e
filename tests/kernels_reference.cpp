// Values of the reference: every operation that is not of the mixture of experts, against plain
// formulas and finite differences.
#include "kernels_reference.hpp"

namespace weft {
namespace {

using namespace reference_test;

constexpr double kExact = 1e-12, kDifference = 1e-8;

Compute op(ComputeKind kind, std::vector<View> in, std::vector<View> out) {
  return {.kind = kind, .in = std::move(in), .out = std::move(out)};
}

TEST(Reference, GemmInAllFourOrientations) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      TestProgram p;
      const View a = trans_a ? p.input("A", 33, 19) : p.input("A", 19, 33);
      const View b = trans_b ? p.input("B", 21, 33) : p.input("B", 33, 21);
      const View c = p.output("C", 19, 21);
      p.then({.kind = ComputeKind::gemm,
              .in = {a, b},
              .out = {c},
              .trans_a = trans_a,
              .trans_b = trans_b});
      const Matrix left = trans_a ? transposed(p.data(a)) : p.data(a);
      const Matrix right = trans_b ? transposed(p.data(b)) : p.data(b);
      expect_near(p.values(c), multiply(left, right), kExact);
    }
  }
}

TEST(Reference, GemmAccumulatesOnWhatWasThere) {
  TestProgram p;
  const View a = p.input("A", 5, 7), b = p.input("B", 7, 6), c = p.input("C", 5, 6);
  p.then({.kind = ComputeKind::gemm, .in = {a, b}, .out = {c}, .accumulate = true});
  p.then({.kind = ComputeKind::gemm, .in = {a, b}, .out = {c}, .accumulate = true});
  Matrix expected = multiply(p.data(a), p.data(b));
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    expected.data[i] = 2 * expected.data[i] + p.data(c).data[i];
  }
  expect_near(p.values(c), expected, kExact);
}

TEST(Reference, InputsAreTakenAsStored) {
  TestProgram p;
  p.dtype = DType::bf16;
  const View x = p.input("X", 3, 5);
  Reference reference(p.program, kSeed);
  EXPECT_EQ(p.values(reference, x).data, p.data(x).data);
  EXPECT_EQ(p.bounds(reference, x).data, Matrix(3, 5).data);
}

TEST(Reference, BiasScaleAddReduceAndColumnSum) {
  TestProgram p;
  const View x = p.input("X", 6, 5), z = p.input("Z", 6, 5), b = p.input("b", 1, 5);
  const View with_bias = p.output("bias", 6, 5), scaled = p.output("scaled", 6, 5);
  const View sum = p.output("sum", 6, 5), folded = p.output("folded", 2, 5);
  const View columns = p.output("columns", 1, 5);
  p.then(op(ComputeKind::bias, {x, b}, {with_bias}));
  p.then({.kind = ComputeKind::scale, .in = {x}, .out = {scaled}, .factor = -0.75});
  p.then(op(ComputeKind::add, {x, z}, {sum}));
  p.then(op(ComputeKind::reduce, {x}, {folded}));
  p.then(op(ComputeKind::column_sum, {x}, {columns}));
  const Matrix dx = p.data(x), dz = p.data(z), db = p.data(b);
  Matrix e_bias(6, 5), e_scaled(6, 5), e_sum(6, 5), e_folded(2, 5), e_columns(1, 5);
  for (Index r = 0; r < 6; ++r) {
    for (Index c = 0; c < 5; ++c) {
      e_bias(r, c) = dx(r, c) + db(0, c);
      e_scaled(r, c) = -0.75 * dx(r, c);
      e_sum(r, c) = dx(r, c) + dz(r, c);
      e_folded(r % 2, c) += dx(r, c);
      e_columns(0, c) += dx(r, c);
    }
  }
  expect_near(p.values(with_bias), e_bias, kExact);
  expect_near(p.values(scaled), e_scaled, kExact);
  expect_near(p.values(sum), e_sum, kExact);
  expect_near(p.values(folded), e_folded, kExact);
  expect_near(p.values(columns), e_columns, kExact);
}

double act_of(Activation act, double x) {
  switch (act) {
    case Activation::identity:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::swiglu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

Matrix act_of(Activation act, Matrix x) {
  for (double& value : x.data) value = act_of(act, value);
  return x;
}

class Activations : public testing::TestWithParam<Activation> {};

TEST_P(Activations, ValueAndGradient) {
  TestProgram p;
  const View z = p.input("Z", 9, 11, 4.0), dy = p.input("dY", 9, 11);
  const View y = p.output("Y", 9, 11), dz = p.output("dZ", 9, 11);
  p.then({.kind = ComputeKind::activation, .in = {z}, .out = {y}, .act = GetParam()});
  p.then({.kind = ComputeKind::activation_grad, .in = {dy, z}, .out = {dz}, .act = GetParam()});
  expect_near(p.values(y), act_of(GetParam(), p.data(z)), kExact);
  const auto f = [](const Matrix& x) { return act_of(GetParam(), x); };
  expect_near(p.values(dz), numeric_gradient(f, p.data(z), p.data(dy)), kDifference);
}

INSTANTIATE_TEST_SUITE_P(All, Activations,
                         testing::Values(Activation::identity, Activation::relu, Activation::gelu));

TEST(Reference, SwigluValueAndGradients) {
  TestProgram p;
  const View gate = p.input("Zg", 7, 5, 4.0), up = p.input("Zu", 7, 5), dy = p.input("dY", 7, 5);
  const View y = p.output("Y", 7, 5), dg = p.output("dZg", 7, 5), du = p.output("dZu", 7, 5);
  p.then(
      {.kind = ComputeKind::activation, .in = {gate, up}, .out = {y}, .act = Activation::swiglu});
  p.then({.kind = ComputeKind::activation_grad,
          .in = {dy, gate, up},
          .out = {dg, du},
          .act = Activation::swiglu});
  const auto f = [](const Matrix& g, const Matrix& u) {
    Matrix result = act_of(Activation::swiglu, g);
    for (std::size_t i = 0; i < u.data.size(); ++i) result.data[i] *= u.data[i];
    return result;
  };
  const Matrix g = p.data(gate), u = p.data(up);
  expect_near(p.values(y), f(g, u), kExact);
  const auto by_gate = [&](const Matrix& x) { return f(x, u); };
  const auto by_up = [&](const Matrix& x) { return f(g, x); };
  expect_near(p.values(dg), numeric_gradient(by_gate, g, p.data(dy)), kDifference);
  expect_near(p.values(du), numeric_gradient(by_up, u, p.data(dy)), kDifference);
}

Matrix softmax_of(Matrix x) {
  for (Index r = 0; r < x.rows; ++r) {
    double total = 0;
    for (Index c = 0; c < x.cols; ++c) total += std::exp(x(r, c));
    for (Index c = 0; c < x.cols; ++c) x(r, c) = std::exp(x(r, c)) / total;
  }
  return x;
}

TEST(Reference, SoftmaxValueAndGradient) {
  TestProgram p;
  const View x = p.input("X", 6, 10, 3.0), dy = p.input("dY", 6, 10);
  const View y = p.output("Y", 6, 10), dx = p.output("dX", 6, 10);
  p.then(op(ComputeKind::softmax, {x}, {y}));
  p.then(op(ComputeKind::softmax_grad, {dy, y}, {dx}));
  expect_near(p.values(y), softmax_of(p.data(x)), kExact);
  expect_near(p.values(dx), numeric_gradient(softmax_of, p.data(x), p.data(dy)), kDifference);
}

TEST(Reference, LayerNorm) {
  TestProgram p;
  const View x = p.input("X", 4, 12, 0.01), gamma = p.input("gamma", 1, 12);
  const View beta = p.input("beta", 1, 12), y = p.output("Y", 4, 12);
  p.then(op(ComputeKind::layer_norm, {x, gamma, beta}, {y}));
  Matrix expected = p.data(x);
  for (Index r = 0; r < 4; ++r) {
    double sum = 0, squares = 0;
    for (Index c = 0; c < 12; ++c) {
      sum += expected(r, c);
      squares += expected(r, c) * expected(r, c);
    }
    const double mean = sum / 12, deviation = std::sqrt(squares / 12 - mean * mean + 1e-5);
    for (Index c = 0; c < 12; ++c) {
      expected(r, c) =
          (expected(r, c) - mean) / deviation * p.data(gamma)(0, c) + p.data(beta)(0, c);
    }
  }
  expect_near(p.values(y), expected, 1e-10);
}

TEST(Reference, OptimizersUpdateInPlace) {
  TestProgram p;
  const View w = p.input("W", 3, 4), g = p.input("g", 3, 4), v = p.input("V", 3, 4);
  const View m1 = p.input("m1", 3, 4), m2 = p.input("m2", 3, 4, 0.5, Fill::positive);
  const View old_m1 = p.input("old", 3, 4);
  p.then({.kind = ComputeKind::sgd, .in = {w, g}, .out = {w}, .factor = 0.1});
  p.then(op(ComputeKind::copy, {m1}, {old_m1}));
  p.then({.kind = ComputeKind::adam,
          .in = {v, g, m1, m2},
          .out = {v, m1, m2},
          .factor = 0.01,
          .step = 3});
  const Matrix gradient = p.data(g);
  Matrix ew = p.data(w), ev = p.data(v), e1 = p.data(m1), e2 = p.data(m2);
  for (std::size_t i = 0; i < ew.data.size(); ++i) {
    const double at = gradient.data[i];
    ew.data[i] -= 0.1 * at;
    e1.data[i] = 0.9 * e1.data[i] + 0.1 * at;
    e2.data[i] = 0.999 * e2.data[i] + 0.001 * at * at;
    const double corrected = e2.data[i] / (1 - 0.999 * 0.999 * 0.999);
    ev.data[i] -= 0.01 * (e1.data[i] / (1 - 0.729)) / (std::sqrt(corrected) + 1e-8);
  }
  expect_near(p.values(w), ew, kExact);
  expect_near(p.values(v), ev, kExact);
  expect_near(p.values(m1), e1, kExact);
  expect_near(p.values(m2), e2, kExact);
  expect_near(p.values(old_m1), p.data(m1), 0);
}

TEST(Reference, RelayoutAndItsInverse) {
  TestProgram p;
  const View g = p.input("G", 3, 8), y = p.output("Y", 3, 8), back = p.output("back", 1, 24);
  Compute forth = op(ComputeKind::relayout, {g}, {y}),
          inverse = op(ComputeKind::split_layout, {y}, {back});
  forth.counts = inverse.counts = {3, 1, 4};
  p.then(forth);
  p.then(inverse);
  const Matrix from = p.data(g);
  Matrix expected(3, 8), flat(1, 24);
  for (Index t = 0; t < 3; ++t) {
    for (Index c = 0; c < 8; ++c) {
      const Index at = c < 3 ? 3 * t + c : c < 4 ? 9 + t : 12 + 4 * t + c - 4;
      expected(t, c) = from.data[static_cast<std::size_t>(at)];
    }
  }
  flat.data = from.data;
  expect_near(p.values(y), expected, 0);
  expect_near(p.values(back), flat, 0);
  Reference sampled(p.program, kSeed);
  EXPECT_EQ(sampled.element("back", 0, 0, 13).value, from.data[13]);
}

}  // namespace
}  // namespace weft
