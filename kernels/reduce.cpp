// Sums of many buffers and sums over rows. f32 accumulation in the order of the sources, so that
// the result does not depend on who computes it; each source is read once, and the output is
// rounded and written once.
#include <algorithm>
#include <array>

#include "kernels/backend_host.hpp"
#include "kernels/reduce_vectors.hpp"

namespace weft {
namespace {

constexpr Index kReduceChunk = 2048;

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

void reduce_f32(float* out, const std::byte* const* sources, int count, Index first, Index n) {
  std::array<float, kReduceChunk> sum{};
  for (int k = 0; k < count; ++k) {
    const auto* source = reinterpret_cast<const float*>(sources[k]) + first;
    for (Index i = 0; i < n; ++i) {
      auto& element = sum[static_cast<std::size_t>(i)];
      element = k == 0 ? source[i] : element + source[i];
    }
  }
  std::copy_n(sum.data(), n, out + first);
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

/// What vectors leave over, and what a processor without them does: elements first .. first+n.
void reduce_chunk(std::byte* out, const std::byte* const* sources, int count, DType dtype,
                  Index first, Index n) {
  const Index offset = first * size_of(dtype);
  if (count <= 0) {
    std::fill_n(out + offset, n * size_of(dtype), std::byte{0});
  } else if (dtype == DType::f32) {
    reduce_f32(reinterpret_cast<float*>(out), sources, count, first, n);
  } else if (dtype == DType::i32) {
    reduce_i32(out, sources, count, first, n);
  } else {
    reduce_16bit(out, sources, count, dtype, first, n);
  }
}

}  // namespace

void reduce_sum(std::byte* out, const std::byte* const* sources, int count, Index n, DType dtype) {
  reduce_sum_to_all(&out, 1, sources, count, n, dtype, false);
}

void reduce_sum_to_all(std::byte* const* outs, int out_count, const std::byte* const* sources,
                       int count, Index n, DType dtype, bool streaming) {
  Index done = count > 0 ? sum_vectors(outs, out_count, sources, count, n, dtype, streaming) : 0;
  for (; done < n; done += kReduceChunk) {
    const Index size = std::min(kReduceChunk, n - done);
    const Bytes at = done * size_of(dtype), bytes = size * size_of(dtype);
    reduce_chunk(outs[0], sources, count, dtype, done, size);
    for (int o = 1; o < out_count; ++o) std::copy_n(outs[0] + at, bytes, outs[o] + at);
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
