#include "kernels/backend_host.hpp"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "patterns/error.hpp"

namespace weft {
namespace host {

void Operands::expect(bool holds, const char* rule) const {
  if (holds) return;
  std::string shapes;
  for (const auto* list : {&in, &out}) {
    if (list == &out) shapes += " ->";
    for (const BoundView& view : *list) {
      shapes += fmt::format(" {}[{}x{}]", to_string(view.dtype), view.rows, view.cols);
    }
  }
  fail_usage(fmt::format("host {}: {}; bound to{}", to_string(op.kind), rule, shapes));
}

void Operands::expect_count(std::size_t inputs, std::size_t outputs) const {
  if (in.size() == inputs && out.size() == outputs) return;
  fail_usage(fmt::format("host {}: needs {} inputs and {} outputs, got {} and {}",
                         to_string(op.kind), inputs, outputs, in.size(), out.size()));
}

void Operands::expect_same_shape(const BoundView& a, const BoundView& b) const {
  expect(a.rows == b.rows && a.cols == b.cols, "operands must have equal shapes");
}

void Operands::expect_shape(const BoundView& view, Index rows, Index cols) const {
  expect(view.rows == rows && view.cols == cols, "an operand's shape does not fit the others");
}

void Operands::expect_float(const BoundView& view) const {
  expect(view.dtype != DType::i32, "works on f32, bf16 and f16, not on i32");
}

void Operands::expect_integers(const BoundView& view) const {
  expect(view.dtype == DType::i32 && contiguous(view),
         "indices and counts must be i32 without gaps between rows");
}

float sum_of(const float* x, Index n) {
  std::array<float, 16> lanes{};
  Index i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) lanes[l] += x[i + static_cast<Index>(l)];
  }
  for (; i < n; ++i) lanes[static_cast<std::size_t>(i % 16)] += x[i];
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

float dot(const float* x, const float* y, Index n) {
  std::array<float, 16> lanes{};
  Index i = 0;
  for (; i + 16 <= n; i += 16) {
    for (std::size_t l = 0; l < 16; ++l) {
      lanes[l] += x[i + static_cast<Index>(l)] * y[i + static_cast<Index>(l)];
    }
  }
  for (; i < n; ++i) lanes[static_cast<std::size_t>(i % 16)] += x[i] * y[i];
  float sum = 0.0f;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void set_zero(const BoundView& view) {
  if (view.cols == 0) return;
  for (Index row = 0; row < view.rows; ++row) {
    std::memset(address(view, row, 0), 0,
                static_cast<std::size_t>(view.cols * size_of(view.dtype)));
  }
}

void copy_rows(const BoundView& from, const BoundView& to, float* buffer) {
  const bool flat = contiguous(from) && contiguous(to);
  const Index rows = flat ? 1 : from.rows;
  const Index cols = flat ? from.elements() : from.cols;
  if (cols == 0) return;
  for (Index row = 0; row < rows; ++row) {
    if (from.dtype == to.dtype) {
      std::memmove(address(to, row, 0), address(from, row, 0),
                   static_cast<std::size_t>(cols * size_of(to.dtype)));
      continue;
    }
    for (Index col = 0; col < cols; col += kChunk) {
      const Index n = std::min(kChunk, cols - col);
      const float* values = read(from, row, col, n, buffer);
      from_f32(address(to, row, col), values, to.dtype, n);
    }
  }
}

namespace {

/// Sums into an output that already holds something are asked for by `accumulate`; where an
/// operation has no such form, ignoring the flag would give a wrong result silently.
bool may_accumulate(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::gemm:
    case ComputeKind::grouped_gemm:
    case ComputeKind::grouped_wgrad:
    case ComputeKind::permute_grad:
    case ComputeKind::column_sum:
      return true;
    default:
      return false;
  }
}

void check_views(const Operands& o) {
  for (const auto* list : {&o.in, &o.out}) {
    for (const BoundView& view : *list) {
      o.expect(view.rows >= 0 && view.cols >= 0, "sizes must not be negative");
      o.expect(view.rows <= 1 || view.ld >= view.cols,
               "the leading dimension must be at least the number of columns");
      o.expect(view.data != nullptr || view.elements() == 0, "an operand has no address");
    }
  }
  o.expect(!o.op.accumulate || may_accumulate(o.op.kind), "has no accumulating form");
}

Bound bind_any(const Operands& o) {
  switch (o.op.kind) {
    case ComputeKind::gemm:
      return bind_gemm(o);
    case ComputeKind::grouped_gemm:
    case ComputeKind::grouped_wgrad:
      return bind_grouped(o);
    case ComputeKind::bias:
    case ComputeKind::activation:
    case ComputeKind::activation_grad:
    case ComputeKind::scale:
    case ComputeKind::add:
    case ComputeKind::copy:
      return bind_elementwise(o);
    case ComputeKind::softmax:
    case ComputeKind::softmax_grad:
    case ComputeKind::layer_norm:
      return bind_rowwise(o);
    case ComputeKind::reduce:
    case ComputeKind::column_sum:
      return bind_reduction(o);
    case ComputeKind::top_k:
    case ComputeKind::top_k_grad:
    case ComputeKind::count_tokens:
      return bind_routing(o);
    case ComputeKind::permute:
    case ComputeKind::permute_grad:
    case ComputeKind::unpermute:
    case ComputeKind::unpermute_grad:
      return bind_permutation(o);
    case ComputeKind::relayout:
    case ComputeKind::split_layout:
      return bind_block_layout(o);
    case ComputeKind::sgd:
    case ComputeKind::adam:
      return bind_optimizer(o);
  }
  fail_usage("host backend: unknown compute operation");
}

class HostBackend final : public KernelBackend {
 public:
  std::string_view name() const override { return "host"; }
  MemorySpace space() const override { return MemorySpace::host; }

  Bound bind(const Compute& op, std::vector<BoundView> in, std::vector<BoundView> out) override {
    const Operands operands{op, std::move(in), std::move(out)};
    check_views(operands);
    return bind_any(operands);
  }

  void set_threads(int threads) override {
    if (threads < 1) fail_usage(fmt::format("threads per gemm must be 1 or more, got {}", threads));
    openblas_set_num_threads(threads);
  }

  /// The configuration text is "OpenBLAS <version> <build options> <core> MAX_THREADS=<n>"; only
  /// the first two words and the core chosen at run time say something about speed.
  std::string description() const override {
    const std::string config = openblas_get_config();
    const auto second = config.find(' ', config.find(' ') + 1);
    const int threads = openblas_get_num_threads();
    return fmt::format("{} {}, {} thread{}", config.substr(0, second), openblas_get_corename(),
                       threads, threads == 1 ? "" : "s");
  }
};

}  // namespace
}  // namespace host

std::unique_ptr<KernelBackend> make_host_backend() { return std::make_unique<host::HostBackend>(); }

}  // namespace weft
