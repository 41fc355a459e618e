#include "kernels/reference.hpp"

#include <fmt/format.h>

#include <map>
#include <string>

#include "kernels/reference_cost.hpp"
#include "kernels/reference_evaluator.hpp"
#include "patterns/error.hpp"

namespace weft {

using reference::cost_of;
using reference::Estimate;
using reference::Evaluator;

struct Reference::Impl {
  /// A tensor that costs less than this as a whole is evaluated as a whole at its first use: later
  /// elements are then looked up.
  static constexpr double kCheapWhole = 2e7;
  struct Slot {
    double element_cost = -1;
    bool tried_whole = false;
  };

  Impl(const Program& program, std::uint64_t seed) : evaluator(program, seed) {
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      ids.emplace(program.tensors[t].name, static_cast<TensorId>(t));
    }
  }

  TensorId find(std::string_view name) const {
    const auto found = ids.find(name);
    if (found == ids.end()) {
      fail_usage(
          fmt::format("the reference has no tensor '{}'; make_reference() must name it as the "
                      "pattern does",
                      name));
    }
    return found->second;
  }

  View view(std::string_view name, int global_slot) const {
    const TensorId id = find(name);
    const Tensor& tensor = evaluator.program().tensors[static_cast<std::size_t>(id)];
    const int slot = global_slot - tensor.slot_offset;
    if (slot < 0 || slot >= tensor.slots) {
      fail_usage(fmt::format("the reference's tensor '{}' has slots {} to {}, not {}", name,
                             tensor.slot_offset, tensor.slot_offset + tensor.slots - 1,
                             global_slot));
    }
    return whole(tensor, id, slot);
  }

  Estimate element(const View& view, Index row, Index col) {
    bool& tried = slots[{view.tensor, view.slot}].tried_whole;
    if (!tried) evaluate_if_cheap(view);
    tried = true;
    if (evaluator.dtype(view) == DType::i32) evaluator.confirm(view, evaluator.end(), row, 1);
    return evaluator.fetch(view, evaluator.end(), {row, col, 1, 1}).get(0, 0);
  }

  void evaluate_if_cheap(const View& view) {
    if (cost_of(evaluator, view, view.rows, view.cols) > kCheapWhole) return;
    try {
      evaluator.demand(view, evaluator.end(), reference::whole_of(view));
    } catch (const Error&) {
      // Some element cannot be had (never written, a refused hint). Asked for alone, each tells.
    }
  }

  Evaluator evaluator;
  std::map<std::string, TensorId, std::less<>> ids;
  std::map<std::pair<TensorId, int>, Slot> slots;
};

Reference::Reference(const Program& program, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(program, seed)) {}
Reference::~Reference() = default;

void Reference::hint(std::string_view tensor, std::vector<std::int32_t> values) {
  const TensorId id = impl_->find(tensor);
  const Tensor& t = impl_->evaluator.program().tensors[static_cast<std::size_t>(id)];
  const auto given = static_cast<Index>(values.size());
  if (t.dtype != DType::i32 || (given != t.elements() && given != t.elements() * t.slots)) {
    fail_usage(
        fmt::format("{} hints for tensor '{}', which is {} and has {} elements in each of {} "
                    "slots; give one for each element of an i32 tensor",
                    given, tensor, to_string(t.dtype), t.elements(), t.slots));
  }
  impl_->evaluator.set_hint(id, std::move(values));
  impl_->slots.clear();
}

Bounded Reference::element(std::string_view tensor, int global_slot, Index row, Index col) {
  const View view = impl_->view(tensor, global_slot);
  const Tensor& t = impl_->evaluator.tensor(view);
  const Index local_row = row - t.row_offset, local_col = col - t.col_offset;
  if (local_row < 0 || local_row >= t.rows || local_col < 0 || local_col >= t.cols) {
    fail_usage(
        fmt::format("element ({}, {}) lies outside of the reference's tensor '{}' ({}x{}); "
                    "ask with global indices",
                    row, col, tensor, t.rows, t.cols));
  }
  const Estimate estimate = impl_->element(view, local_row, local_col);
  return {estimate.value, estimate.bound};
}

double Reference::cost(std::string_view tensor, int global_slot) {
  const View view = impl_->view(tensor, global_slot);
  double& cost = impl_->slots[{view.tensor, view.slot}].element_cost;
  if (cost < 0) cost = cost_of(impl_->evaluator, view, 1, 1);
  return cost;
}

}  // namespace weft
