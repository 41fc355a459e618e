#include "patterns/program.hpp"

namespace weft {

namespace {

/// Per element: comparisons, exp, tanh and divisions count as one.
double activation_flops(Activation act, bool gradient) {
  switch (act) {
    case Activation::identity:
      return gradient ? 1 : 0;
    case Activation::relu:
      return gradient ? 2 : 1;
    case Activation::gelu:
      return gradient ? 16 : 9;
    case Activation::swiglu:
      return gradient ? 11 : 5;
  }
  return 0;
}

}  // namespace

double Compute::flops() const {
  if (in.empty() || out.empty()) return 0;
  const auto elements = static_cast<double>(in[0].elements());
  const auto made = static_cast<double>(out[0].elements());
  switch (kind) {
    case ComputeKind::gemm:
      return 2 * made * static_cast<double>(trans_a ? in[0].rows : in[0].cols);
    case ComputeKind::grouped_gemm:
      return 2 * elements * static_cast<double>(out[0].cols);
    case ComputeKind::grouped_wgrad:
      return in.size() < 2 ? 0 : 2 * elements * static_cast<double>(in[1].cols);
    case ComputeKind::activation:
      return made * activation_flops(act, false);
    case ComputeKind::activation_grad:
      return made * activation_flops(act, true);
    case ComputeKind::softmax:
      return 4 * made;  // subtract the maximum, exp, sum, divide
    case ComputeKind::softmax_grad:
      return 4 * made;  // dot of two, subtract, multiply
    case ComputeKind::layer_norm:
      return 8 * made;  // mean 1, variance 3, normalise 2, gamma and beta 2
    case ComputeKind::unpermute:
      return 2 * elements;
    case ComputeKind::unpermute_grad:
      return 3 * made;  // scale, and a dot of two
    case ComputeKind::permute_grad:
    case ComputeKind::reduce:
    case ComputeKind::column_sum:
      return elements;
    case ComputeKind::bias:
    case ComputeKind::scale:
    case ComputeKind::add:
      return made;
    case ComputeKind::sgd:
      return 2 * made;
    case ComputeKind::adam:
      return 14 * made;
    case ComputeKind::top_k:
    case ComputeKind::top_k_grad:
    case ComputeKind::count_tokens:
    case ComputeKind::permute:
    case ComputeKind::relayout:
    case ComputeKind::split_layout:
    case ComputeKind::copy:
      return 0;
  }
  return 0;
}

}  // namespace weft
