#include "patterns/program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {

int RankSet::size() const {
  int product = 1;
  for (const Axis& axis : axes) product *= axis.count;
  return product;
}

Rank RankSet::at(int index) const {
  if (index < 0 || index >= size()) {
    fail_usage(fmt::format("member {} of a group of {} ranks does not exist; the last is {}", index,
                           size(), size() - 1));
  }
  Rank rank = base;
  for (const Axis& axis : axes) {
    rank += index % axis.count * axis.stride;
    index /= axis.count;
  }
  return rank;
}

namespace {

/// Index of the member `rest` ranks above the base, over the first `axes` axes; -1 if there is
/// none. Tries every digit that can still be right, so strides need not be in order.
int index_within(const std::vector<RankSet::Axis>& axes, std::size_t used, int rest) {
  if (used == 0) return rest == 0 ? 0 : -1;
  const RankSet::Axis& axis = axes[used - 1];
  int below = 1;
  for (std::size_t i = 0; i + 1 < used; ++i) below *= axes[i].count;
  const int top = axis.stride > 0 ? std::min(axis.count - 1, rest / axis.stride) : 0;
  for (int digit = top; digit >= 0; --digit) {
    const int inner = index_within(axes, used - 1, rest - digit * axis.stride);
    if (inner >= 0) return digit * below + inner;
  }
  return -1;
}

}  // namespace

int RankSet::index_of(Rank rank) const {
  return rank < base ? -1 : index_within(axes, axes.size(), rank - base);
}

std::vector<Rank> RankSet::members() const {
  std::vector<Rank> ranks{base};
  ranks.reserve(static_cast<std::size_t>(size()));
  for (const Axis& axis : axes) {
    const std::size_t before = ranks.size();
    for (int i = 1; i < axis.count; ++i) {
      for (std::size_t j = 0; j < before; ++j) ranks.push_back(ranks[j] + i * axis.stride);
    }
  }
  return ranks;
}

TensorId Program::add(Tensor tensor) {
  if (tensor.global_rows == 0) tensor.global_rows = tensor.rows;
  if (tensor.global_cols == 0) tensor.global_cols = tensor.cols;
  tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(tensors.size()) - 1;
}

GroupId Program::add(Group group) {
  const auto found = std::find(groups.begin(), groups.end(), group);
  if (found != groups.end()) return static_cast<GroupId>(found - groups.begin());
  groups.push_back(std::move(group));
  return static_cast<GroupId>(groups.size()) - 1;
}

StepId Program::then(Step step) {
  steps.push_back(std::move(step));
  return static_cast<StepId>(steps.size()) - 1;
}

View Program::whole(TensorId id) const {
  if (id < 0 || id >= static_cast<TensorId>(tensors.size())) {
    fail_usage(
        fmt::format("tensor {} does not exist; the program has {} tensors", id, tensors.size()));
  }
  return weft::whole(tensors[static_cast<std::size_t>(id)], id);
}

View whole(const Tensor& tensor, TensorId id, int slot) {
  return rows_of(tensor, id, 0, tensor.rows, slot);
}

View rows_of(const Tensor& tensor, TensorId id, Index first, Index count, int slot) {
  return {.tensor = id,
          .slot = slot,
          .offset = first * tensor.cols,
          .rows = count,
          .cols = tensor.cols,
          .ld = tensor.cols};
}

}  // namespace weft
