// bias, activations and their derivatives, scale, add, copy. gelu is the exact one, x*Phi(x), not
// the tanh form.
#include "kernels/elementwise.hpp"

#include "kernels/vector_math.hpp"
#include "patterns/error.hpp"

namespace weft::host {
namespace {

// A chunk's arrays are distinct or identical, never shifted against each other: no iteration needs
// another's result.
template <class Body>
void each(Index n, Body body) {
#pragma GCC ivdep
  for (Index i = 0; i < n; ++i) body(i);
}

struct Add {
  void operator()(const Sources<2>& in, const Targets<1>& out, Index n) const {
    const float *x = in[0], *z = in[1];
    float* y = out[0];
    each(n, [=](Index i) { y[i] = x[i] + z[i]; });
  }
};

struct Scale {
  float factor;
  void operator()(const Sources<1>& in, const Targets<1>& out, Index n) const {
    const float* x = in[0];
    float* y = out[0];
    each(n, [x, y, by = factor](Index i) { y[i] = by * x[i]; });
  }
};

// What an activation is at a point, and its derivative there.
struct Identity {
  static float value(float z) { return z; }
  static float slope(float) { return 1.0f; }
};

struct Relu {
  static float value(float z) { return z < 0.0f ? 0.0f : z; }  // keeps NaN
  static float slope(float z) { return z > 0.0f ? 1.0f : 0.0f; }
};

struct Gelu {
  static float value(float z) { return z * standard_normal(z).lower_tail; }
  static float slope(float z) {
    const Normal normal = standard_normal(z);
    return normal.lower_tail + z * normal.density;
  }
};

struct Silu {
  static float value(float z) { return z * sigmoid(z); }
  static float slope(float z) {
    const float s = sigmoid(z);
    return s + z * s * (1.0f - s);
  }
};

template <class F>
struct Activate {
  void operator()(const Sources<1>& in, const Targets<1>& out, Index n) const {
    const float* z = in[0];
    float* y = out[0];
    each(n, [=](Index i) { y[i] = F::value(z[i]); });
  }
};

template <class F>
struct ActivateGrad {
  void operator()(const Sources<2>& in, const Targets<1>& out, Index n) const {
    const float *dy = in[0], *z = in[1];
    float* dz = out[0];
    each(n, [=](Index i) { dz[i] = dy[i] * F::slope(z[i]); });
  }
};

struct SwiGlu {
  void operator()(const Sources<2>& in, const Targets<1>& out, Index n) const {
    const float *gate = in[0], *up = in[1];
    float* y = out[0];
    each(n, [=](Index i) { y[i] = Silu::value(gate[i]) * up[i]; });
  }
};

struct SwiGluGrad {
  void operator()(const Sources<3>& in, const Targets<2>& out, Index n) const {
    const float *dy = in[0], *gate = in[1], *up = in[2];
    float *dgate = out[0], *dup = out[1];
    each(n, [=](Index i) {
      const float g = gate[i], u = up[i], d = dy[i];
      dgate[i] = d * u * Silu::slope(g);
      dup[i] = d * Silu::value(g);
    });
  }
};

class Copy final : public BoundCompute {
 public:
  Copy(const BoundView& from, const BoundView& to) : from_(from), to_(to) {}
  void run() override {
    std::array<float, kChunk> buffer;
    copy_rows(from_, to_, buffer.data());
  }

 private:
  BoundView from_, to_;
};

Bound bind_copy(const Operands& o) {
  o.expect_count(1, 1);
  o.expect_same_shape(o.in[0], o.out[0]);
  return std::make_unique<Copy>(o.in[0], o.out[0]);
}

Bound bind_bias(Operands o) {
  o.expect_count(2, 1);
  o.expect_shape(o.in[1], 1, o.in[0].cols);
  o.in[1].rows = o.in[0].rows;
  o.in[1].ld = 0;
  return bind_kernel<2, 1>(o, Add{});
}

Bound bind_activation(const Operands& o) {
  switch (o.op.act) {
    case Activation::identity:
      return bind_kernel<1, 1>(o, Activate<Identity>{});
    case Activation::relu:
      return bind_kernel<1, 1>(o, Activate<Relu>{});
    case Activation::gelu:
      return bind_kernel<1, 1>(o, Activate<Gelu>{});
    case Activation::swiglu:
      return bind_kernel<2, 1>(o, SwiGlu{});
  }
  fail_usage("host activation: unknown function");
}

Bound bind_activation_grad(const Operands& o) {
  switch (o.op.act) {
    case Activation::identity:
      return bind_kernel<2, 1>(o, ActivateGrad<Identity>{});
    case Activation::relu:
      return bind_kernel<2, 1>(o, ActivateGrad<Relu>{});
    case Activation::gelu:
      return bind_kernel<2, 1>(o, ActivateGrad<Gelu>{});
    case Activation::swiglu:
      return bind_kernel<3, 2>(o, SwiGluGrad{});
  }
  fail_usage("host activation_grad: unknown function");
}

}  // namespace

Bound bind_elementwise(const Operands& o) {
  switch (o.op.kind) {
    case ComputeKind::bias:
      return bind_bias(o);
    case ComputeKind::activation:
      return bind_activation(o);
    case ComputeKind::activation_grad:
      return bind_activation_grad(o);
    case ComputeKind::scale:
      return bind_kernel<1, 1>(o, Scale{static_cast<float>(o.op.factor)});
    case ComputeKind::add:
      return bind_kernel<2, 1>(o, Add{});
    default:
      return bind_copy(o);
  }
}

}  // namespace weft::host
