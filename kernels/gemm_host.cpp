// Dense and grouped matrix products: OpenBLAS on f32. Other storage types are converted tile by
// tile into f32 scratch, so that scratch stays at a few MiB whatever the matrices' sizes, and
// conversion costs 1/1000 of the arithmetic.
#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/backend_host.hpp"
#include "patterns/error.hpp"

namespace weft::host {
namespace {

/// A side of a tile. Products of this size run at the speed of large ones.
constexpr Index kTile = 1024;

/// One product to be summed into the output: op(A)*op(B) over `k` terms.
struct Piece {
  BoundView a, b;
  Index k = 0;
};

/// Block of `view`: its address as f32 and its leading dimension.
struct Tile {
  float* data;
  Index ld;
};

Tile tile_at(const BoundView& view, Index row, Index col, Index cols, std::vector<float>& scratch) {
  if (view.dtype == DType::f32) return {reinterpret_cast<float*>(address(view, row, col)), view.ld};
  return {scratch.data(), cols};
}

/// Loads a block of rows x cols unless it can be used in place.
Tile load_tile(const BoundView& view, Index row, Index col, Index rows, Index cols,
               std::vector<float>& scratch) {
  const Tile tile = tile_at(view, row, col, cols, scratch);
  if (view.dtype == DType::f32) return tile;
  for (Index r = 0; r < rows; ++r) {
    to_f32(tile.data + r * tile.ld, address(view, row + r, col), view.dtype, cols);
  }
  return tile;
}

/// C (+)= sum over pieces of op(A)*op(B), with the scratch that it needs.
class Product {
 public:
  /// The limits are the largest sizes that run() will see.
  Product(const Operands& o, Index max_m, Index max_n, Index max_k)
      : trans_a_(o.op.kind == ComputeKind::grouped_wgrad || o.op.trans_a),
        trans_b_(o.op.trans_b),
        accumulate_(o.op.accumulate) {
    const auto longest = std::numeric_limits<blasint>::max();
    for (const auto* list : {&o.in, &o.out}) {
      for (const BoundView& v : *list) {
        o.expect(v.rows <= longest && v.cols <= longest && v.ld <= longest,
                 "a size is more than the BLAS library can count (2^31 - 1)");
      }
    }
    const Index m = std::min(max_m, kTile), n = std::min(max_n, kTile), k = std::min(max_k, kTile);
    reserve(a_, o.in[0], m * k);
    reserve(b_, o.in[1], k * n);
    reserve(c_, o.out[0], m * n);
    direct_ = a_.empty() && b_.empty() && c_.empty();
  }

  void run(std::span<const Piece> pieces, const BoundView& c) {
    if (c.elements() == 0) return;
    const Index tile = direct_ ? std::max(c.rows, c.cols) : kTile;
    for (Index i = 0; i < c.rows; i += tile) {
      for (Index j = 0; j < c.cols; j += tile) {
        run_tile(pieces, c, i, j, std::min(tile, c.rows - i), std::min(tile, c.cols - j));
      }
    }
  }

 private:
  static void reserve(std::vector<float>& scratch, const BoundView& view, Index elements) {
    if (view.dtype != DType::f32)
      scratch.resize(static_cast<std::size_t>(std::max<Index>(elements, 1)));
  }

  void run_tile(std::span<const Piece> pieces, const BoundView& c, Index i, Index j, Index m,
                Index n) {
    const Tile sum = accumulate_ ? load_tile(c, i, j, m, n, c_) : tile_at(c, i, j, n, c_);
    bool started = accumulate_;
    for (const Piece& piece : pieces) {
      const Index step = direct_ ? std::max<Index>(piece.k, 1) : kTile;
      for (Index p = 0; p < piece.k; p += step) {
        multiply(piece, sum, i, j, p, m, n, std::min(step, piece.k - p), started ? 1.0f : 0.0f);
        started = true;
      }
    }
    if (!started) {
      for (Index r = 0; r < m; ++r) std::fill_n(sum.data + r * sum.ld, n, 0.0f);
    }
    if (c.dtype == DType::f32) return;
    for (Index r = 0; r < m; ++r) from_f32(address(c, i + r, j), sum.data + r * n, c.dtype, n);
  }

  void multiply(const Piece& piece, const Tile& sum, Index i, Index j, Index p, Index m, Index n,
                Index k, float beta) {
    const Tile a =
        trans_a_ ? load_tile(piece.a, p, i, k, m, a_) : load_tile(piece.a, i, p, m, k, a_);
    const Tile b =
        trans_b_ ? load_tile(piece.b, j, p, n, k, b_) : load_tile(piece.b, p, j, k, n, b_);
    const auto whole = [](Index value) { return static_cast<blasint>(value); };
    cblas_sgemm(CblasRowMajor, trans_a_ ? CblasTrans : CblasNoTrans,
                trans_b_ ? CblasTrans : CblasNoTrans, whole(m), whole(n), whole(k), 1.0f, a.data,
                whole(a.ld), b.data, whole(b.ld), beta, sum.data, whole(sum.ld));
  }

  bool trans_a_, trans_b_, accumulate_, direct_ = false;
  std::vector<float> a_, b_, c_;
};

/// BLAS wants a leading dimension of at least the row length, also of a single row.
BoundView with_valid_ld(BoundView view) {
  view.ld = std::max({view.ld, view.cols, Index{1}});
  return view;
}

BoundView rows_at(BoundView view, Index first, Index count) {
  view.data = address(view, first, 0);
  view.rows = count;
  return view;
}

class Gemm final : public BoundCompute {
 public:
  Gemm(const Operands& o, Index k)
      : piece_{with_valid_ld(o.in[0]), with_valid_ld(o.in[1]), k},
        c_(with_valid_ld(o.out[0])),
        product_(o, c_.rows, c_.cols, k) {}
  void run() override { product_.run({&piece_, 1}, c_); }

 private:
  Piece piece_;
  BoundView c_;
  Product product_;
};

/// The run-time counts of the grouped operations, checked: a wrong count would write outside the
/// tensors.
class Segments {
 public:
  Segments(const BoundView& counts, Index capacity)
      : counts_(integers(counts)), capacity_(capacity) {}

  std::size_t size() const { return counts_.size(); }
  Index operator[](std::size_t segment) const { return counts_[segment]; }

  void check() const {
    Index total = 0;
    for (const std::int32_t count : counts_) {
      if (count < 0)
        fail(ExitCode::failed, fmt::format("grouped gemm: a segment has {} rows", count));
      total += count;
    }
    if (total > capacity_) {
      fail(ExitCode::failed,
           fmt::format("grouped gemm: segments have {} rows together, the operands hold {}; "
                       "raise the capacity",
                       total, capacity_));
    }
  }

 private:
  std::span<const std::int32_t> counts_;
  Index capacity_;
};

class GroupedGemm final : public BoundCompute {
 public:
  explicit GroupedGemm(const Operands& o)
      : a_(with_valid_ld(o.in[0])),
        b_(with_valid_ld(o.in[1])),
        c_(with_valid_ld(o.out[0])),
        experts_(o.op.experts),
        segments_(o.in[2], std::min(a_.rows, c_.rows)),
        product_(o, a_.rows, c_.cols, a_.cols) {}

  void run() override {
    segments_.check();
    const Index expert_rows = b_.rows / experts_;
    Index row = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      const Index count = segments_[s];
      const Index expert = static_cast<Index>(s) % experts_;
      const Piece piece{rows_at(a_, row, count), rows_at(b_, expert * expert_rows, expert_rows),
                        a_.cols};
      product_.run({&piece, 1}, rows_at(c_, row, count));
      row += count;
    }
  }

 private:
  BoundView a_, b_, c_;
  Index experts_;
  Segments segments_;
  Product product_;
};

class GroupedWgrad final : public BoundCompute {
 public:
  explicit GroupedWgrad(const Operands& o)
      : a_(with_valid_ld(o.in[0])),
        d_(with_valid_ld(o.in[1])),
        g_(with_valid_ld(o.out[0])),
        experts_(o.op.experts),
        segments_(o.in[2], std::min(a_.rows, d_.rows)),
        starts_(segments_.size()),
        product_(o, a_.cols, d_.cols, a_.rows) {
    pieces_.reserve(segments_.size());
  }

  void run() override {
    segments_.check();
    Index row = 0;
    for (std::size_t s = 0; s < starts_.size(); ++s) {
      starts_[s] = row;
      row += segments_[s];
    }
    const Index expert_rows = g_.rows / experts_;
    for (Index expert = 0; expert < experts_; ++expert) {
      collect(static_cast<std::size_t>(expert));
      product_.run(pieces_, rows_at(g_, expert * expert_rows, expert_rows));
    }
  }

 private:
  void collect(std::size_t expert) {
    pieces_.clear();
    for (std::size_t s = expert; s < starts_.size(); s += static_cast<std::size_t>(experts_)) {
      const Index count = segments_[s];
      pieces_.push_back({rows_at(a_, starts_[s], count), rows_at(d_, starts_[s], count), count});
    }
  }

  BoundView a_, d_, g_;
  Index experts_;
  Segments segments_;
  std::vector<Index> starts_;
  std::vector<Piece> pieces_;
  Product product_;
};

}  // namespace

Bound bind_gemm(const Operands& o) {
  o.expect_count(2, 1);
  for (const BoundView* view : {&o.in[0], &o.in[1], &o.out[0]}) o.expect_float(*view);
  const BoundView &a = o.in[0], &b = o.in[1];
  const Index m = o.op.trans_a ? a.cols : a.rows, k = o.op.trans_a ? a.rows : a.cols;
  const Index kb = o.op.trans_b ? b.cols : b.rows, n = o.op.trans_b ? b.rows : b.cols;
  o.expect(k == kb, "the inner sizes of A and B differ");
  o.expect_shape(o.out[0], m, n);
  return std::make_unique<Gemm>(o, k);
}

Bound bind_grouped(const Operands& o) {
  o.expect_count(3, 1);
  for (const BoundView* view : {&o.in[0], &o.in[1], &o.out[0]}) o.expect_float(*view);
  o.expect_integers(o.in[2]);
  const BoundView& stacked = o.op.kind == ComputeKind::grouped_gemm ? o.in[1] : o.out[0];
  o.expect(o.op.experts > 0 && stacked.rows % o.op.experts == 0,
           "needs the number of experts, which must divide the rows of the stacked matrix");
  o.expect(!o.op.trans_a, "has no form with A transposed");
  const Index expert_rows = stacked.rows / o.op.experts;
  if (o.op.kind == ComputeKind::grouped_wgrad) {
    o.expect(!o.op.trans_b, "has no form with D transposed");
    o.expect(o.in[0].cols == expert_rows && o.in[1].cols == stacked.cols, "widths do not fit");
    return std::make_unique<GroupedWgrad>(o);
  }
  const Index k = o.op.trans_b ? stacked.cols : expert_rows;
  const Index n = o.op.trans_b ? expert_rows : stacked.cols;
  o.expect(o.in[0].cols == k && o.out[0].cols == n, "widths do not fit");
  return std::make_unique<GroupedGemm>(o);
}

}  // namespace weft::host
