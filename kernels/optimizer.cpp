// Optimizer steps: sgd, and adam (Kingma and Ba 2015, algorithm 1, with bias correction).
#include <cmath>

#include "kernels/elementwise.hpp"

namespace weft::host {
namespace {

struct Sgd {
  float rate;
  void operator()(const Sources<2>& in, const Targets<1>& out, Index n) const {
    const float *w = in[0], *g = in[1];
    float* updated = out[0];
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) updated[i] = w[i] - rate * g[i];
  }
};

struct Adam {
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  static constexpr float kEpsilon = 1e-8f;
  float rate, correction1, correction2;  // 1/(1 - beta^step)

  Adam(double learning_rate, int step)
      : rate(static_cast<float>(learning_rate)),
        correction1(static_cast<float>(1.0 / (1.0 - std::pow(kBeta1, step)))),
        correction2(static_cast<float>(1.0 / (1.0 - std::pow(kBeta2, step)))) {}

  void operator()(const Sources<4>& in, const Targets<3>& out, Index n) const {
    constexpr auto b1 = static_cast<float>(kBeta1), b2 = static_cast<float>(kBeta2);
    constexpr auto c1 = static_cast<float>(1.0 - kBeta1), c2 = static_cast<float>(1.0 - kBeta2);
    const float *w = in[0], *g = in[1], *m = in[2], *v = in[3];
    float *new_w = out[0], *new_m = out[1], *new_v = out[2];
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) {
      const float gradient = g[i], weight = w[i];
      const float mean = b1 * m[i] + c1 * gradient;
      const float square = b2 * v[i] + c2 * gradient * gradient;
      new_m[i] = mean;
      new_v[i] = square;
      new_w[i] =
          weight - rate * (mean * correction1) / (std::sqrt(square * correction2) + kEpsilon);
    }
  }
};

}  // namespace

Bound bind_optimizer(const Operands& o) {
  if (o.op.kind == ComputeKind::sgd) {
    return bind_kernel<2, 1>(o, Sgd{static_cast<float>(o.op.factor)});
  }
  o.expect(o.op.step >= 1, "counts its steps from 1");
  return bind_kernel<4, 3>(o, Adam{o.op.factor, o.op.step});
}

}  // namespace weft::host
