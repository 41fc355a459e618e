// Operations over whole rows: softmax and its gradient, layer norm.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/backend_host.hpp"
#include "kernels/vector_math.hpp"

namespace weft::host {
namespace {

/// f32 scratch for one row of each operand; rows that are stored as f32 are used in place.
class RowBuffers {
 public:
  RowBuffers(std::size_t operands, Index cols)
      : cols_(static_cast<std::size_t>(cols)), values_(operands * cols_) {}
  float* operator[](std::size_t operand) { return values_.data() + operand * cols_; }

 private:
  std::size_t cols_;
  std::vector<float> values_;
};

float largest(const float* x, Index n) {
  std::array<float, 16> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  Index i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) lanes[l] = larger(x[i + static_cast<Index>(l)], lanes[l]);
  }
  for (; i < n; ++i) lanes[0] = larger(x[i], lanes[0]);
  float result = lanes[0];
  for (const float lane : lanes) result = larger(lane, result);
  return result;
}

class Softmax final : public BoundCompute {
 public:
  explicit Softmax(const Operands& o) : x_(o.in[0]), y_(o.out[0]), buffers_(2, x_.cols) {}

  void run() override {
    const Index n = x_.cols;
    for (Index row = 0; row < x_.rows; ++row) {
      const float* x = read(x_, row, 0, n, buffers_[0]);
      float* y = target(y_, row, 0, buffers_[1]);
      const float top = largest(x, n);  // of all exponents the largest becomes 0: no overflow
#pragma GCC ivdep
      for (Index i = 0; i < n; ++i) y[i] = exp_nonpositive(x[i] - top);
      const float factor = 1.0f / sum_of(y, n);
      for (Index i = 0; i < n; ++i) y[i] *= factor;
      write_back(y_, row, 0, n, y);
    }
  }

 private:
  BoundView x_, y_;
  RowBuffers buffers_;
};

/// dX = Y * (dY - sum(dY * Y)) over each row.
class SoftmaxGrad final : public BoundCompute {
 public:
  explicit SoftmaxGrad(const Operands& o)
      : dy_(o.in[0]), y_(o.in[1]), dx_(o.out[0]), buffers_(3, y_.cols) {}

  void run() override {
    const Index n = y_.cols;
    for (Index row = 0; row < y_.rows; ++row) {
      const float* dy = read(dy_, row, 0, n, buffers_[0]);
      const float* y = read(y_, row, 0, n, buffers_[1]);
      float* dx = target(dx_, row, 0, buffers_[2]);
      const float mean = dot(dy, y, n);
#pragma GCC ivdep
      for (Index i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - mean);
      write_back(dx_, row, 0, n, dx);
    }
  }

 private:
  BoundView dy_, y_, dx_;
  RowBuffers buffers_;
};

/// Y = (X - mean) / sqrt(variance + eps) * gamma + beta, variance over n (not n - 1).
class LayerNorm final : public BoundCompute {
 public:
  explicit LayerNorm(const Operands& o)
      : x_(o.in[0]), gamma_(o.in[1]), beta_(o.in[2]), y_(o.out[0]), buffers_(4, x_.cols) {}

  void run() override {
    const Index n = x_.cols;
    if (x_.elements() == 0) return;
    const float* gamma = read(gamma_, 0, 0, n, buffers_[0]);
    const float* beta = read(beta_, 0, 0, n, buffers_[1]);
    for (Index row = 0; row < x_.rows; ++row) {
      const float* x = read(x_, row, 0, n, buffers_[2]);
      float* y = target(y_, row, 0, buffers_[3]);
      normalise(x, gamma, beta, y, n);
      write_back(y_, row, 0, n, y);
    }
  }

 private:
  static void normalise(const float* x, const float* gamma, const float* beta, float* y, Index n) {
    constexpr float kEpsilon = 1e-5f;
    const auto count = static_cast<float>(n);
    const float mean = sum_of(x, n) / count;
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) y[i] = x[i] - mean;
    const float inverse = 1.0f / std::sqrt(dot(y, y, n) / count + kEpsilon);
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) y[i] = y[i] * inverse * gamma[i] + beta[i];
  }

  BoundView x_, gamma_, beta_, y_;
  RowBuffers buffers_;
};

}  // namespace

Bound bind_rowwise(const Operands& o) {
  const bool norm = o.op.kind == ComputeKind::layer_norm;
  o.expect_count(o.op.kind == ComputeKind::softmax ? 1 : norm ? 3 : 2, 1);
  for (const BoundView& view : o.in) o.expect_float(view);
  o.expect_float(o.out[0]);
  o.expect_same_shape(o.in[0], o.out[0]);
  if (norm) {
    o.expect_shape(o.in[1], 1, o.in[0].cols);
    o.expect_shape(o.in[2], 1, o.in[0].cols);
    return std::make_unique<LayerNorm>(o);
  }
  if (o.op.kind == ComputeKind::softmax) return std::make_unique<Softmax>(o);
  o.expect_same_shape(o.in[1], o.out[0]);
  return std::make_unique<SoftmaxGrad>(o);
}

}  // namespace weft::host
