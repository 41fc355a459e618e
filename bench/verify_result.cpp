// Results against the double-precision unsharded reference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/verify.hpp"

namespace weft {
namespace {

// Multiply-adds. A reference that costs less than the first is compared whole; of a larger one,
// elements are sampled up to the second per tensor slot: about a tenth of a second each.
constexpr double kWholeBudget = 1.5e7;
constexpr double kSampleBudget = 5e6;
constexpr Index kFewestSamples = 4, kMostSamples = 100;

double multiply_adds(const Program& program) {
  double flops = 0;
  const auto add = [&](const Step& step, std::int64_t times) {
    const auto* compute = std::get_if<Compute>(&step.op);
    if (compute) flops += static_cast<double>(times) * compute->flops();
  };
  for_each_leaf(program.prologue, add);
  for_each_leaf(program.steps, add);
  return flops / 2;
}

// `count` of n positions: the two ends, and others spread by a multiplicative walk.
std::vector<Index> spread(Index n, Index count) {
  std::vector<Index> chosen{0};
  if (n > 1 && count > 1) chosen.push_back(n - 1);
  std::uint64_t state = 0x9e3779b97f4a7c15ULL;
  while (static_cast<Index>(chosen.size()) < std::min(n, count)) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    chosen.push_back(static_cast<Index>((state >> 16) % static_cast<std::uint64_t>(n)));
  }
  return chosen;
}

// Elements of a block to compare: all, or where few rows cross few columns, because elements of one
// row (or column) share most of what they cost.
std::vector<Index> chosen_elements(const Tensor& tensor, Index count) {
  std::vector<Index> chosen;
  if (count >= tensor.elements()) {
    for (Index i = 0; i < tensor.elements(); ++i) chosen.push_back(i);
    return chosen;
  }
  const Index side = std::max<Index>(1, static_cast<Index>(std::sqrt(static_cast<double>(count))));
  for (Index row : spread(tensor.rows, side)) {
    for (Index col : spread(tensor.cols, side)) chosen.push_back(row * tensor.cols + col);
  }
  return chosen;
}

bool written_by_top_k(const Program& program, TensorId id) {
  bool found = false;
  const auto look = [&](const Step& step, std::int64_t) {
    const auto* compute = std::get_if<Compute>(&step.op);
    if (compute && compute->kind == ComputeKind::top_k) found |= compute->out.front().tensor == id;
  };
  for_each_leaf(program.prologue, look);
  for_each_leaf(program.steps, look);
  return found;
}

// A rank's part of a selection: where it lies, and the indices.
struct Selection {
  Index row_offset = 0, rows = 0, cols = 0, global_rows = 0;
};

std::vector<std::byte> pack(const Tensor& tensor, const std::byte* data) {
  const Selection head{tensor.row_offset, tensor.rows, tensor.cols, tensor.global_rows};
  std::vector<std::byte> bytes(sizeof head + static_cast<std::size_t>(tensor.elements()) * 4);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + sizeof head, data, bytes.size() - sizeof head);
  return bytes;
}

std::vector<std::int32_t> join(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::int32_t> whole;
  for (const std::vector<std::byte>& bytes : parts) {
    Selection head;
    std::memcpy(&head, bytes.data(), sizeof head);
    whole.resize(static_cast<std::size_t>(head.global_rows * head.cols));
    std::memcpy(whole.data() + head.row_offset * head.cols, bytes.data() + sizeof head,
                bytes.size() - sizeof head);
  }
  return whole;
}

}  // namespace

ResultCheck::ResultCheck(const Program& reference, std::uint64_t seed)
    : program_(reference), seed_(seed), reference_(std::make_unique<Reference>(reference, seed)) {}

// The selection is discontinuous: two sound runs may choose differently where two probabilities are
// within rounding. So the reference is told what was chosen, checks that it was a valid choice, and
// goes on from there.
void ResultCheck::give_hints(const Execution& execution, Bootstrap& bootstrap) {
  const auto& tensors = execution.program().tensors;
  for (std::size_t id = 0; id < tensors.size(); ++id) {
    if (!written_by_top_k(execution.program(), static_cast<TensorId>(id))) continue;
    const auto mine = pack(tensors[id], execution.address(static_cast<TensorId>(id), 0));
    std::vector<std::int32_t> whole = join(bootstrap.all_gather(std::span(mine)));
    if (hints_[tensors[id].name] == whole) continue;
    reference_ = std::make_unique<Reference>(program_, seed_);
    hints_[tensors[id].name] = std::move(whole);
    for (const auto& [name, values] : hints_) reference_->hint(name, values);
  }
}

Verdict ResultCheck::run(const Execution& execution, Bootstrap& bootstrap,
                         const Injection& injection) {
  Verdict verdict;
  give_hints(execution, bootstrap);
  const auto& tensors = execution.program().tensors;
  bool injected = false;
  for (std::size_t id = 0; id < tensors.size() && verdict.passed; ++id) {
    const Tensor& tensor = tensors[id];
    if (!tensor.check) continue;
    for (int slot = 0; slot < tensor.slots; ++slot) {
      if (!injected && tensor.elements() > 0) {
        injection.apply("result", bootstrap.rank(),
                        execution.address(static_cast<TensorId>(id), slot), tensor.elements(),
                        tensor.dtype);
        injected = true;
      }
      check_slot(execution, tensor, static_cast<TensorId>(id), slot, bootstrap, verdict);
    }
  }
  return verdict;
}

void ResultCheck::check_slot(const Execution& execution, const Tensor& tensor, TensorId id,
                             int slot, Bootstrap& bootstrap, Verdict& verdict) {
  const int global_slot = tensor.slot_offset + slot;
  Index samples = tensor.elements();
  if (multiply_adds(program_) > kWholeBudget) {
    samples =
        std::min(kMostSamples,
                 static_cast<Index>(kSampleBudget / reference_->cost(tensor.name, global_slot)));
    if (samples < kFewestSamples) {
      ++verdict.beyond_budget;
      return;
    }
  }
  const std::byte* data = execution.address(id, slot);
  for (Index i : chosen_elements(tensor, samples)) {
    const Index row = tensor.row_offset + i / tensor.cols,
                col = tensor.col_offset + i % tensor.cols;
    const Bounded want = reference_->element(tensor.name, global_slot, row, col);
    const double got = load_element(data, tensor.dtype, i);
    ++verdict.results;
    if (std::abs(got - want.value) <= want.bound) continue;  // false for NaN too
    const auto me = static_cast<std::size_t>(bootstrap.rank());
    verdict.passed = false;
    verdict.why = fmt::format(
        "result check: rank {} on {}: {}[slot {}][{}][{}] (global) is {}, should be {} within "
        "{:.3g}",
        me, bootstrap.hosts()[me], tensor.name, global_slot, row, col, got, want.value, want.bound);
    return;
  }
}

}  // namespace weft
