#include "patterns/validate_compute.hpp"

namespace weft {

Signature signature_of(const Compute& op) {
  const bool gated = op.act == Activation::swiglu;
  switch (op.kind) {
    case ComputeKind::gemm:
      return {{"A", "B"}, {"C"}};
    case ComputeKind::grouped_gemm:
      return {{"A", "B", "counts"}, {"C"}};
    case ComputeKind::grouped_wgrad:
      return {{"A", "D", "counts"}, {"G"}};
    case ComputeKind::bias:
      return {{"Z", "b"}, {"Y"}};
    case ComputeKind::activation:
      return gated ? Signature{{"Zg", "Zu"}, {"Y"}} : Signature{{"Z"}, {"Y"}};
    case ComputeKind::activation_grad:
      return gated ? Signature{{"dY", "Zg", "Zu"}, {"dZg", "dZu"}} : Signature{{"dY", "Z"}, {"dZ"}};
    case ComputeKind::softmax:
      return {{"X"}, {"Y"}};
    case ComputeKind::softmax_grad:
      return {{"dY", "Y"}, {"dX"}};
    case ComputeKind::layer_norm:
      return {{"X", "gamma", "beta"}, {"Y"}};
    case ComputeKind::top_k:
      return {{"P"}, {"idx", "W"}};
    case ComputeKind::top_k_grad:
      return {{"dW", "idx", "P"}, {"dP"}};
    case ComputeKind::count_tokens:
      return {{"idx"}, {"counts"}};
    case ComputeKind::permute:
      return {{"X", "idx"}, {"S"}};
    case ComputeKind::permute_grad:
      return {{"dS", "idx"}, {"dX"}};
    case ComputeKind::unpermute:
      return {{"S", "idx", "W"}, {"Y"}};
    case ComputeKind::unpermute_grad:
      return {{"dY", "S", "idx", "W"}, {"dS", "dW"}};
    case ComputeKind::relayout:
      return {{"G"}, {"Y"}};
    case ComputeKind::split_layout:
      return {{"Y"}, {"G"}};
    case ComputeKind::reduce:
      return {{"S"}, {"Y"}};
    case ComputeKind::column_sum:
      return {{"X"}, {"y"}};
    case ComputeKind::copy:
      return {{"X"}, {"Y"}};
    case ComputeKind::scale:
      return {{"X"}, {"Y"}};
    case ComputeKind::add:
      return {{"X", "Z"}, {"Y"}};
    case ComputeKind::sgd:
      return {{"W", "g"}, {"W"}};
    case ComputeKind::adam:
      return {{"W", "g", "m", "v"}, {"W", "m", "v"}};
  }
  return {};
}

bool may_overlap(const View& a, const View& b) {
  if (a.tensor != b.tensor || a.slot != b.slot || a.slot_per != b.slot_per) return false;
  if (a.elements() == 0 || b.elements() == 0) return false;
  const auto end = [](const View& v) { return v.offset + (v.rows - 1) * v.ld + v.cols; };
  if (a.offset >= end(b) || b.offset >= end(a)) return false;
  if (a.ld != b.ld || a.ld == 0) return true;
  // Blocks of columns side by side interleave in memory without touching, if neither wraps around a
  // row.
  const Index first_a = a.offset % a.ld, first_b = b.offset % b.ld;
  const bool wraps = first_a + a.cols > a.ld || first_b + b.cols > b.ld;
  return wraps || (first_a < first_b + b.cols && first_b < first_a + a.cols);
}

}  // namespace weft
