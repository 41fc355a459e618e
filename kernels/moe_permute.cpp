// Moves rows of tokens into the order of their experts and back, and the adjoints of both; and the
// two layouts of a gathered matrix, as blocks of columns one after another or as one matrix.
#include "kernels/moe_host.hpp"

#include <algorithm>
#include <array>

namespace weft::host {

PermutedOrder::PermutedOrder(const BoundView& indices, int experts)
    : indices_(integers(indices)),
      tokens_(indices.rows),
      choices_(indices.cols),
      next_(static_cast<std::size_t>(experts) + 1),
      rows_(indices_.size()) {}

void PermutedOrder::update() {
  const auto experts = static_cast<Index>(next_.size()) - 1;
  std::fill(next_.begin(), next_.end(), 0);
  for (const std::int32_t expert : indices_) {
    check_expert(expert, experts);
    ++next_[static_cast<std::size_t>(expert) + 1];
  }
  for (std::size_t e = 1; e < next_.size(); ++e) next_[e] += next_[e - 1];
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    rows_[i] = next_[static_cast<std::size_t>(indices_[i])]++;
  }
}

namespace {

BoundView row_of(BoundView view, Index row) {
  view.data = address(view, row, 0);
  view.rows = 1;
  return view;
}

class Permute final : public BoundCompute {
 public:
  explicit Permute(const Operands& o) : x_(o.in[0]), s_(o.out[0]), order_(o.in[1], o.op.experts) {}

  void run() override {
    std::array<float, kChunk> buffer;
    order_.update();
    for (Index token = 0; token < order_.tokens(); ++token) {
      for (Index c = 0; c < order_.choices(); ++c) {
        copy_rows(row_of(x_, token), row_of(s_, order_.row(token, c)), buffer.data());
      }
    }
  }

 private:
  BoundView x_, s_;
  PermutedOrder order_;
};

/// Y_t (+)= sum over choices of W[t,c] * S[row(t,c)]; without W all weights are 1. It serves
/// unpermute and, as sums of copies are the adjoint of copying, permute_grad.
class GatherRows final : public BoundCompute {
 public:
  GatherRows(const Operands& o, const BoundView* weights)
      : s_(o.in[0]),
        y_(o.out[0]),
        order_(o.in[1], o.op.experts),
        accumulate_(o.op.accumulate),
        width_(static_cast<std::size_t>(y_.cols)),
        weights_(static_cast<std::size_t>(order_.choices()), 1.0f),
        sum_(width_),
        row_(width_) {
    if (weights != nullptr) w_ = *weights;
  }

  void run() override {
    order_.update();
    for (Index token = 0; token < order_.tokens(); ++token) {
      if (w_.data != nullptr) to_f32(weights_.data(), address(w_, token, 0), w_.dtype, w_.cols);
      if (accumulate_) {
        to_f32(sum_.data(), address(y_, token, 0), y_.dtype, y_.cols);
      } else {
        std::fill(sum_.begin(), sum_.end(), 0.0f);
      }
      for (Index c = 0; c < order_.choices(); ++c) add_row(order_.row(token, c), c);
      from_f32(address(y_, token, 0), sum_.data(), y_.dtype, y_.cols);
    }
  }

 private:
  void add_row(Index row, Index choice) {
    const float* s = read(s_, row, 0, s_.cols, row_.data());
    const float weight = weights_[static_cast<std::size_t>(choice)];
#pragma GCC ivdep
    for (std::size_t i = 0; i < width_; ++i) sum_[i] += weight * s[i];
  }

  BoundView s_, y_, w_;
  PermutedOrder order_;
  bool accumulate_;
  std::size_t width_;
  std::vector<float> weights_, sum_, row_;
};

/// dS[row(t,c)] = W[t,c] * dY_t, dW[t,c] = dY_t . S[row(t,c)]
class UnpermuteGrad final : public BoundCompute {
 public:
  explicit UnpermuteGrad(const Operands& o)
      : dy_(o.in[0]),
        s_(o.in[1]),
        w_(o.in[3]),
        ds_(o.out[0]),
        dw_(o.out[1]),
        order_(o.in[2], o.op.experts),
        weights_(static_cast<std::size_t>(order_.choices())),
        grads_(weights_.size()),
        dy_row_(static_cast<std::size_t>(dy_.cols)),
        s_row_(dy_row_.size()),
        ds_row_(dy_row_.size()) {}

  void run() override {
    order_.update();
    for (Index token = 0; token < order_.tokens(); ++token) {
      const float* dy = read(dy_, token, 0, dy_.cols, dy_row_.data());
      to_f32(weights_.data(), address(w_, token, 0), w_.dtype, w_.cols);
      for (std::size_t c = 0; c < weights_.size(); ++c) {
        grads_[c] = through_row(order_.row(token, static_cast<Index>(c)), weights_[c], dy);
      }
      from_f32(address(dw_, token, 0), grads_.data(), dw_.dtype, dw_.cols);
    }
  }

 private:
  /// S is read before dS is written: both may be one tensor.
  float through_row(Index row, float weight, const float* dy) {
    const Index n = dy_.cols;
    const float grad = dot(dy, read(s_, row, 0, n, s_row_.data()), n);
    float* ds = target(ds_, row, 0, ds_row_.data());
#pragma GCC ivdep
    for (Index i = 0; i < n; ++i) ds[i] = weight * dy[i];
    write_back(ds_, row, 0, n, ds);
    return grad;
  }

  BoundView dy_, s_, w_, ds_, dw_;
  PermutedOrder order_;
  std::vector<float> weights_, grads_, dy_row_, s_row_, ds_row_;
};

/// Copies between a matrix and the blocks [T x width] one after another that hold its columns.
class BlockLayout final : public BoundCompute {
 public:
  BlockLayout(const Operands& o, const BoundView& blocks, const BoundView& matrix, bool gather)
      : gather_(gather) {
    BoundView block = blocks, columns = matrix;
    block.rows = matrix.rows;
    for (const Index width : o.op.counts) {
      block.cols = block.ld = columns.cols = width;
      pairs_.push_back({block, columns});
      block.data += block.bytes();
      columns.data += width * size_of(columns.dtype);
    }
  }

  void run() override {
    std::array<float, kChunk> buffer;
    for (const Pair& pair : pairs_) {
      copy_rows(gather_ ? pair.block : pair.columns, gather_ ? pair.columns : pair.block,
                buffer.data());
    }
  }

 private:
  struct Pair {
    BoundView block, columns;
  };
  bool gather_;
  std::vector<Pair> pairs_;
};

void expect_permuted(const Operands& o, const BoundView& tokens, const BoundView& permuted,
                     const BoundView& indices) {
  o.expect_float(tokens);
  o.expect_float(permuted);
  o.expect_integers(indices);
  o.expect(o.op.experts > 0, "needs the number of experts");
  o.expect(tokens.cols == permuted.cols, "rows of tokens and of copies must be equally wide");
  o.expect(indices.rows == tokens.rows && permuted.rows >= indices.elements(),
           "needs a row of indices for each token, and room for each copy");
}

void expect_weights(const Operands& o, const BoundView& weights, const BoundView& indices) {
  o.expect_float(weights);
  o.expect_same_shape(weights, indices);
}

}  // namespace

Bound bind_permutation(const Operands& o) {
  switch (o.op.kind) {
    case ComputeKind::permute:
      o.expect_count(2, 1);
      expect_permuted(o, o.in[0], o.out[0], o.in[1]);
      return std::make_unique<Permute>(o);
    case ComputeKind::permute_grad:
      o.expect_count(2, 1);
      expect_permuted(o, o.out[0], o.in[0], o.in[1]);
      return std::make_unique<GatherRows>(o, nullptr);
    case ComputeKind::unpermute:
      o.expect_count(3, 1);
      expect_permuted(o, o.out[0], o.in[0], o.in[1]);
      expect_weights(o, o.in[2], o.in[1]);
      return std::make_unique<GatherRows>(o, &o.in[2]);
    default:
      break;
  }
  o.expect_count(4, 2);
  expect_permuted(o, o.in[0], o.in[1], o.in[2]);
  expect_permuted(o, o.in[0], o.out[0], o.in[2]);
  expect_weights(o, o.in[3], o.in[2]);
  expect_weights(o, o.out[1], o.in[2]);
  return std::make_unique<UnpermuteGrad>(o);
}

Bound bind_block_layout(const Operands& o) {
  o.expect_count(1, 1);
  const bool gather = o.op.kind == ComputeKind::relayout;
  const BoundView& blocks = gather ? o.in[0] : o.out[0];
  const BoundView& matrix = gather ? o.out[0] : o.in[0];
  Index width = 0;
  for (const Index count : o.op.counts) {
    o.expect(count >= 0, "widths must not be negative");
    width += count;
  }
  o.expect(width == matrix.cols && blocks.elements() == matrix.elements(),
           "the widths must add up to the columns of the matrix, the blocks to its elements");
  o.expect(contiguous(blocks), "the blocks must follow one another without gaps");
  return std::make_unique<BlockLayout>(o, blocks, matrix, gather);
}

}  // namespace weft::host
