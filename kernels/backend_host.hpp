// What the files of the host backend share: one bind function per family of operations, the checks
// of operands, and access to stored elements as f32. Private to kernels/*.cpp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/convert.hpp"

namespace weft::host {

/// The operands of one operation, in the order of ComputeKind.
struct Operands {
  const Compute& op;
  std::vector<BoundView> in, out;

  /// Throws Error(usage) unless there are so many operands.
  void expect_count(std::size_t inputs, std::size_t outputs) const;
  /// Throws Error(usage), naming the operation and what is wrong, unless `holds`.
  void expect(bool holds, const char* rule) const;
  void expect_same_shape(const BoundView& a, const BoundView& b) const;
  void expect_shape(const BoundView& view, Index rows, Index cols) const;
  void expect_float(const BoundView& view) const;
  /// An i32 view without gaps.
  void expect_integers(const BoundView& view) const;
};

using Bound = std::unique_ptr<BoundCompute>;
Bound bind_gemm(const Operands&);          // gemm
Bound bind_grouped(const Operands&);       // grouped_gemm, grouped_wgrad
Bound bind_elementwise(const Operands&);   // bias, activation, activation_grad, scale, add, copy
Bound bind_rowwise(const Operands&);       // softmax, softmax_grad, layer_norm
Bound bind_reduction(const Operands&);     // reduce, column_sum
Bound bind_routing(const Operands&);       // top_k, top_k_grad, count_tokens
Bound bind_permutation(const Operands&);   // permute, unpermute and their gradients
Bound bind_block_layout(const Operands&);  // relayout, split_layout
Bound bind_optimizer(const Operands&);     // sgd, adam

/// Elements per operand that are worked on at a time where storage must be converted: 4 KiB, so
/// that the pieces of all operands of any operation stay in the first-level cache.
inline constexpr Index kChunk = 1024;

inline std::byte* address(const BoundView& view, Index row, Index col) {
  return view.data + (row * view.ld + col) * size_of(view.dtype);
}

inline bool contiguous(const BoundView& view) { return view.ld == view.cols || view.rows <= 1; }

/// n elements from (row, col) as f32: where they lie if stored so, else converted into `buffer`.
inline const float* read(const BoundView& view, Index row, Index col, Index n, float* buffer) {
  std::byte* from = address(view, row, col);
  if (view.dtype == DType::f32) return reinterpret_cast<const float*>(from);
  to_f32(buffer, from, view.dtype, n);
  return buffer;
}

/// Where to write n elements of f32 that belong at (row, col): in place, or `buffer`, to be
/// followed by write_back().
inline float* target(const BoundView& view, Index row, Index col, float* buffer) {
  if (view.dtype != DType::f32) return buffer;
  return reinterpret_cast<float*>(address(view, row, col));
}

inline void write_back(const BoundView& view, Index row, Index col, Index n, const float* buffer) {
  if (view.dtype != DType::f32) from_f32(address(view, row, col), buffer, view.dtype, n);
}

inline std::span<const std::int32_t> integers(const BoundView& view) {
  return {reinterpret_cast<const std::int32_t*>(view.data),
          static_cast<std::size_t>(view.elements())};
}

/// Sums over a row with 16 running sums: vector code, and an error that grows with n/16 only.
float sum_of(const float* x, Index n);
float dot(const float* x, const float* y, Index n);

/// Sets elements to zero (all bits zero is 0 in every type).
void set_zero(const BoundView& view);

/// Copies rows, converting where the types differ.
void copy_rows(const BoundView& from, const BoundView& to, float* buffer);

}  // namespace weft::host
