// Rules of the compute operations: validate()'s part for Compute. Internal to patterns/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "patterns/program.hpp"

namespace weft {

/// The operands of an operation by the names that ComputeKind gives them. "idx" and "counts" are
/// i32.
struct Signature {
  std::vector<std::string_view> in, out;
};
Signature signature_of(const Compute& op);

/// Empty if the operands fit the conventions of ComputeKind, else what is wrong and what would fit.
/// The views must exist and lie inside their tensors.
std::string compute_problem(const Program& program, const Compute& op);

/// Whether two views may touch the same element. Views whose slots move differently are taken as
/// apart.
bool may_overlap(const View& a, const View& b);

}  // namespace weft
