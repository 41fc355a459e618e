// What the tests of the reference share: a small program, its stored inputs as plain matrices, and
// its outputs as the reference sees them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/generator.hpp"
#include "kernels/reference.hpp"

namespace weft::reference_test {

struct Matrix {
  Index rows = 0, cols = 0;
  std::vector<double> data;

  Matrix() = default;
  Matrix(Index r, Index c, double value = 0.0)
      : rows(r), cols(c), data(static_cast<std::size_t>(r * c), value) {}
  double& operator()(Index r, Index c) { return data[static_cast<std::size_t>(r * cols + c)]; }
  double operator()(Index r, Index c) const { return data[static_cast<std::size_t>(r * cols + c)]; }
};

inline constexpr std::uint64_t kSeed = 7;

/// A value as it would be stored.
inline double stored(double value, DType dtype) {
  std::byte bytes[4];
  store_element(bytes, dtype, 0, value);
  return load_element(bytes, dtype, 0);
}

struct TestProgram {
  Program program;
  DType dtype = DType::f32;

  View input(const char* name, Index rows, Index cols, double scale = 1.0,
             Fill fill = Fill::uniform) {
    return program.whole(program.add(Tensor{
        .name = name, .dtype = dtype, .rows = rows, .cols = cols, .fill = fill, .scale = scale}));
  }
  View output(const char* name, Index rows, Index cols) {
    return program.whole(
        program.add(Tensor{.name = name, .dtype = dtype, .rows = rows, .cols = cols}));
  }
  View integers(const char* name, Index rows, Index cols, std::vector<std::int32_t> values = {}) {
    const Fill fill = values.empty() ? Fill::none : Fill::values;
    return program.whole(program.add(Tensor{.name = name,
                                            .dtype = DType::i32,
                                            .rows = rows,
                                            .cols = cols,
                                            .fill = fill,
                                            .values = std::move(values)}));
  }
  void then(Compute op) { program.then(Step{.op = std::move(op)}); }

  const Tensor& tensor(const View& view) const {
    return program.tensors[static_cast<std::size_t>(view.tensor)];
  }
  /// What fill_tensor() puts into memory.
  Matrix data(const View& view) const {
    const Tensor& t = tensor(view);
    std::vector<std::byte> bytes(static_cast<std::size_t>(t.bytes()));
    fill_tensor(t, 0, bytes.data(), kSeed);
    Matrix m(t.rows, t.cols);
    for (std::size_t i = 0; i < m.data.size(); ++i) {
      m.data[i] = load_element(bytes.data(), t.dtype, static_cast<Index>(i));
    }
    return m;
  }
  Matrix values(Reference& reference, const View& view) const {
    Matrix m(tensor(view).rows, tensor(view).cols);
    for (Index r = 0; r < m.rows; ++r) {
      for (Index c = 0; c < m.cols; ++c) {
        m(r, c) = reference.element(tensor(view).name, 0, r, c).value;
      }
    }
    return m;
  }
  Matrix values(const View& view) const {
    Reference reference(program, kSeed);
    return values(reference, view);
  }
  Matrix bounds(Reference& reference, const View& view) const {
    Matrix m(tensor(view).rows, tensor(view).cols);
    for (Index r = 0; r < m.rows; ++r) {
      for (Index c = 0; c < m.cols; ++c) {
        m(r, c) = reference.element(tensor(view).name, 0, r, c).bound;
      }
    }
    return m;
  }
};

inline void expect_near(const Matrix& actual, const Matrix& expected, double tolerance) {
  ASSERT_EQ(actual.rows, expected.rows);
  ASSERT_EQ(actual.cols, expected.cols);
  for (Index r = 0; r < actual.rows; ++r) {
    for (Index c = 0; c < actual.cols; ++c) {
      ASSERT_NEAR(actual(r, c), expected(r, c), tolerance) << "at " << r << ", " << c;
    }
  }
}

inline Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < b.cols; ++j) {
      for (Index k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

inline Matrix transposed(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  }
  return t;
}

/// d(sum of dy*f(x))/dx by central differences.
inline Matrix numeric_gradient(const std::function<Matrix(const Matrix&)>& f, Matrix x,
                               const Matrix& dy, double h = 1e-5) {
  const auto loss = [&] {
    const Matrix y = f(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.data.size(); ++i) sum += dy.data[i] * y.data[i];
    return sum;
  };
  Matrix gradient(x.rows, x.cols);
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    const double at = x.data[i];
    x.data[i] = at + h;
    const double above = loss();
    x.data[i] = at - h;
    gradient.data[i] = (above - loss()) / (2 * h);
    x.data[i] = at;
  }
  return gradient;
}

}  // namespace weft::reference_test
