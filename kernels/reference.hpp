// The double-precision reference: evaluates the elements of an unsharded Program lazily, each with
// a bound on the error that a computation in storage precision may have made. Slow, and obviously
// right: one short rule per operation.
//
//   Reference reference(program, seed);
//   reference.hint("indices", values);   // what top_k chose; checked to be valid, then used
//   Bounded y = reference.element("Y", slot, row, col);
//   ok = |actual - y.value| <= y.bound;
//
// Wrong: to hint after evaluating; it is allowed, but all that was known is forgotten.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "patterns/program.hpp"

namespace weft {

struct Bounded {
  double value = 0;  // exact arithmetic on the stored inputs
  double bound = 0;  // |stored - value| may be this much: the analysis is in reference_bounds.hpp
};

class Reference {
 public:
  /// `program` must be the unsharded one (one rank, groups of size 1, communication steps absent or
  /// copies).
  Reference(const Program& program, std::uint64_t seed);
  ~Reference();

  /// The selection that a run made, for an i32 tensor written by top_k: [rows x cols] of global row
  /// order, of slot 0 or of all slots one after another. Every element that comes from a token
  /// checks that the token's choices are distinct experts and the largest within their bounds;
  /// throws Error(failed) if they are not. Order and counts of tokens follow from the hint alone.
  void hint(std::string_view tensor, std::vector<std::int32_t> values);

  /// The element after one iteration (prologue, then steps). Throws Error(usage) on an unknown
  /// tensor.
  Bounded element(std::string_view tensor, int global_slot, Index row, Index col);

  /// An estimate of the multiply-adds that element() would cost with nothing known yet, so that a
  /// caller can stay inside a budget. Give hints first: without them a permuted row costs the whole
  /// router.
  double cost(std::string_view tensor, int global_slot);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
