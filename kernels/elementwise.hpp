// The driver of operations that work on every element alone: it cuts operands into chunks, converts
// those that are not stored as f32, and hands plain arrays to a kernel. Private to kernels/*.cpp.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/backend_host.hpp"

namespace weft::host {

template <int Inputs>
using Sources = std::array<const float*, static_cast<std::size_t>(Inputs)>;
template <int Outputs>
using Targets = std::array<float*, static_cast<std::size_t>(Outputs)>;

/// Kernel: void operator()(const Sources<Inputs>&, const Targets<Outputs>&, Index n) const. An
/// output may be an input (the same memory, not a part of it). A row vector is a view of all rows
/// with ld = 0.
template <int Inputs, int Outputs, class Kernel>
class Elementwise final : public BoundCompute {
 public:
  using InViews = std::array<BoundView, static_cast<std::size_t>(Inputs)>;
  using OutViews = std::array<BoundView, static_cast<std::size_t>(Outputs)>;

  Elementwise(const InViews& in, const OutViews& out, Kernel kernel)
      : in_(in), out_(out), kernel_(kernel), rows_(out[0].rows), cols_(out[0].cols) {
    const auto gapless = [](const BoundView& v) { return contiguous(v); };
    if (std::all_of(in_.begin(), in_.end(), gapless) &&
        std::all_of(out_.begin(), out_.end(), gapless)) {
      cols_ = out[0].elements();
      rows_ = std::min<Index>(rows_, 1);
    }
  }

  void run() override {
    for (Index row = 0; row < rows_; ++row) {
      for (Index col = 0; col < cols_; col += kChunk)
        run_chunk(row, col, std::min(kChunk, cols_ - col));
    }
  }

 private:
  using Buffer = std::array<float, kChunk>;

  void run_chunk(Index row, Index col, Index n) {
    std::array<Buffer, static_cast<std::size_t>(Inputs + Outputs)> buffers;
    Sources<Inputs> sources;
    Targets<Outputs> targets;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      sources[i] = read(in_[i], row, col, n, buffers[i].data());
    }
    for (std::size_t i = 0; i < out_.size(); ++i) {
      targets[i] = target(out_[i], row, col, buffers[in_.size() + i].data());
    }
    kernel_(sources, targets, n);
    for (std::size_t i = 0; i < out_.size(); ++i) write_back(out_[i], row, col, n, targets[i]);
  }

  InViews in_;
  OutViews out_;
  Kernel kernel_;
  Index rows_, cols_;
};

/// Binds the operation whose operands are `o`'s in their order; all must have one shape and a
/// floating type.
template <int Inputs, int Outputs, class Kernel>
Bound bind_kernel(const Operands& o, Kernel kernel) {
  o.expect_count(Inputs, Outputs);
  typename Elementwise<Inputs, Outputs, Kernel>::InViews in;
  typename Elementwise<Inputs, Outputs, Kernel>::OutViews out;
  std::copy(o.in.begin(), o.in.end(), in.begin());
  std::copy(o.out.begin(), o.out.end(), out.begin());
  for (const auto* list : {&o.in, &o.out}) {
    for (const BoundView& view : *list) {
      o.expect_float(view);
      o.expect_same_shape(view, out[0]);
    }
  }
  return std::make_unique<Elementwise<Inputs, Outputs, Kernel>>(in, out, kernel);
}

}  // namespace weft::host
