// Sums of many buffers and sums over rows. f32 accumulation in the order of the sources, so that
// the result does not depend on who computes it; each source is read once, and the output is
// rounded and written once.
#include <algorithm>
#include <array>

#include "kernels/backend_host.hpp"

namespace weft {
namespace {

/// Chunks are larger than elsewhere: every source is a stream of its own, and short pieces would
/// defeat prefetching.
constexpr Index kReduceChunk = 2048;

// out may be a source (the same memory): element i is read before it is written, and no other needs
// it.
template <int N>
void sum_arrays(float* out, const std::array<const float*, 4>& s, Index n) {
  const float *a = s[0], *b = s[1], *c = s[2], *d = s[3];
#pragma GCC ivdep
  for (Index i = 0; i < n; ++i) {
    float sum = a[i];
    if constexpr (N > 1) sum += b[i];
    if constexpr (N > 2) sum += c[i];
    if constexpr (N > 3) sum += d[i];
    out[i] = sum;
  }
}

void sum_up_to_four(float* out, const std::array<const float*, 4>& s, int count, Index n) {
  switch (count) {
    case 1:
      return sum_arrays<1>(out, s, n);
    case 2:
      return sum_arrays<2>(out, s, n);
    case 3:
      return sum_arrays<3>(out, s, n);
    default:
      return sum_arrays<4>(out, s, n);
  }
}

/// One chunk of f32: four sources per pass, the running sum in the first-level cache. `out` is
/// written last, when every source has been read.
void reduce_f32(float* out, const std::byte* const* sources, int count, Index first, Index n) {
  alignas(64) std::array<float, kReduceChunk> sum;
  int done = 0;
  while (done < count) {
    std::array<const float*, 4> s{};
    int used = 0;
    if (done > 0) s[static_cast<std::size_t>(used++)] = sum.data();
    while (used < 4 && done < count) {
      s[static_cast<std::size_t>(used++)] = reinterpret_cast<const float*>(sources[done++]) + first;
    }
    sum_up_to_four(done == count ? out + first : sum.data(), s, used, n);
  }
}

void reduce_16bit(std::byte* out, const std::byte* const* sources, int count, DType dtype,
                  Index first, Index n) {
  alignas(64) std::array<float, kReduceChunk> sum, next;
  const Index offset = first * size_of(dtype);
  to_f32(sum.data(), sources[0] + offset, dtype, n);
  for (int k = 1; k < count; ++k) {
    to_f32(next.data(), sources[k] + offset, dtype, n);
    for (Index i = 0; i < n; ++i)
      sum[static_cast<std::size_t>(i)] += next[static_cast<std::size_t>(i)];
  }
  from_f32(out + offset, sum.data(), dtype, n);
}

void reduce_i32(std::byte* out, const std::byte* const* sources, int count, Index first, Index n) {
  std::array<std::uint32_t, kReduceChunk>
      sum{};  // wraps where signed arithmetic would be undefined
  for (int k = 0; k < count; ++k) {
    const auto* source = reinterpret_cast<const std::uint32_t*>(sources[k]) + first;
    for (Index i = 0; i < n; ++i) sum[static_cast<std::size_t>(i)] += source[i];
  }
  std::copy_n(sum.data(), n, reinterpret_cast<std::uint32_t*>(out) + first);
}

}  // namespace

void reduce_sum(std::byte* out, const std::byte* const* sources, int count, Index n, DType dtype) {
  if (count <= 0) {
    std::fill_n(out, n * size_of(dtype), std::byte{0});
    return;
  }
  for (Index first = 0; first < n; first += kReduceChunk) {
    const Index size = std::min(kReduceChunk, n - first);
    switch (dtype) {
      case DType::f32:
        reduce_f32(reinterpret_cast<float*>(out), sources, count, first, size);
        break;
      case DType::i32:
        reduce_i32(out, sources, count, first, size);
        break;
      default:
        reduce_16bit(out, sources, count, dtype, first, size);
        break;
    }
  }
}

namespace host {
namespace {

class Reduce final : public BoundCompute {
 public:
  explicit Reduce(const Operands& o)
      : x_(o.in[0]),
        y_(o.out[0]),
        count_(y_.rows > 0 ? x_.rows / y_.rows : 0),
        sources_(static_cast<std::size_t>(count_)) {}

  void run() override {
    const bool flat = contiguous(x_) && contiguous(y_);
    const Index n = flat ? y_.elements() : y_.cols;
    for (Index row = 0; row < (flat ? 1 : y_.rows); ++row) {
      for (Index block = 0; block < count_; ++block) {
        sources_[static_cast<std::size_t>(block)] = address(x_, block * y_.rows + row, 0);
      }
      if (n > 0) reduce_row(address(y_, row, 0), n);
    }
  }

 private:
  void reduce_row(std::byte* out, Index n) {
    const auto count = static_cast<int>(count_);
    if (x_.dtype == y_.dtype) return reduce_sum(out, sources_.data(), count, n, y_.dtype);
    std::array<float, kReduceChunk> sum, next;
    for (Index first = 0; first < n; first += kReduceChunk) {
      const Index size = std::min(kReduceChunk, n - first);
      sum.fill(0.0f);
      for (const std::byte* source : sources_) {
        to_f32(next.data(), source + first * size_of(x_.dtype), x_.dtype, size);
        for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) sum[i] += next[i];
      }
      from_f32(out + first * size_of(y_.dtype), sum.data(), y_.dtype, size);
    }
  }

  BoundView x_, y_;
  Index count_;
  std::vector<const std::byte*> sources_;
};

/// Sums of up to kRows rows are summed in turn: the error grows with the square root of the number
/// of rows.
class ColumnSum final : public BoundCompute {
 public:
  explicit ColumnSum(const Operands& o)
      : x_(o.in[0]),
        y_(o.out[0]),
        accumulate_(o.op.accumulate),
        total_(static_cast<std::size_t>(x_.cols)),
        partial_(total_.size()),
        row_(total_.size()) {}

  void run() override {
    const Index n = x_.cols;
    if (n == 0) return;
    if (accumulate_) {
      to_f32(total_.data(), y_.data, y_.dtype, n);
    } else {
      std::fill(total_.begin(), total_.end(), 0.0f);
    }
    for (Index first = 0; first < x_.rows; first += kRows) {
      std::fill(partial_.begin(), partial_.end(), 0.0f);
      for (Index row = first; row < std::min(first + kRows, x_.rows); ++row) {
        add(partial_.data(), read(x_, row, 0, n, row_.data()), n);
      }
      add(total_.data(), partial_.data(), n);
    }
    from_f32(y_.data, total_.data(), y_.dtype, n);
  }

 private:
  static constexpr Index kRows = 64;

  static void add(float* sum, const float* x, Index n) {
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) sum[i] += x[i];
  }

  BoundView x_, y_;
  bool accumulate_;
  std::vector<float> total_, partial_, row_;
};

}  // namespace

Bound bind_reduction(const Operands& o) {
  o.expect_count(1, 1);
  if (o.op.kind == ComputeKind::column_sum) {
    o.expect_float(o.in[0]);
    o.expect_float(o.out[0]);
    o.expect_shape(o.out[0], 1, o.in[0].cols);
    return std::make_unique<ColumnSum>(o);
  }
  const Index rows = o.out[0].rows;
  o.expect(o.in[0].cols == o.out[0].cols, "the blocks must be as wide as the sum");
  o.expect(rows == 0 ? o.in[0].rows == 0 : o.in[0].rows % rows == 0,
           "the rows of the blocks must be a multiple of the rows of the sum");
  return std::make_unique<Reduce>(o);
}

}  // namespace host
}  // namespace weft
