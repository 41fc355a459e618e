// The order that permute gives to the copies of tokens. Private to kernels/moe_*.cpp.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend_host.hpp"

namespace weft::host {

/// Throws Error(failed) unless 0 <= expert < experts: an index from a broken exchange would write
/// anywhere.
void check_expert(std::int32_t expert, Index experts);

/// Row of each selection in the permuted order: by expert, then token, then choice.
class PermutedOrder {
 public:
  PermutedOrder(const BoundView& indices, int experts);
  /// Reads the indices anew. Throws Error(failed) on an index that is no expert.
  void update();
  /// Row of choice c of token t.
  Index row(Index token, Index choice) const {
    return rows_[static_cast<std::size_t>(token * choices_ + choice)];
  }
  Index tokens() const { return tokens_; }
  Index choices() const { return choices_; }

 private:
  std::span<const std::int32_t> indices_;
  Index tokens_, choices_;
  std::vector<Index> next_;  // per expert: the next free row
  std::vector<Index> rows_;
};

}  // namespace weft::host
