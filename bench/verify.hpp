// Verification before timing. Two independent checks, both of which must pass:
//   exchange: every communication step alone, on integer patterns that depend on rank, position and
//   step; every element of
//             every output is compared, exactly;
//   result:   one serial and one overlapped iteration from fresh data; every checked tensor against
//   the double-precision
//             unsharded reference, whole where that is cheap, sampled elements where not, within
//             the reference's error bounds.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "bench/executor.hpp"
#include "bench/injection.hpp"
#include "kernels/reference.hpp"

namespace weft {

struct Verdict {
  bool passed = true;
  std::string why;  // of the first failure of the lowest rank: rank, host, step or tensor, element,
                    // got, expected
  std::int64_t exchanged = 0;  // elements compared, all ranks
  std::int64_t results = 0;
  std::int64_t beyond_budget =
      0;  // checked tensors whose elements cost more than the budget: not compared
};

/// The reference of one case, shared by all transports and algorithms that run it, so that what one
/// check has evaluated is there for the next.
class ResultCheck {
 public:
  ResultCheck(const Program& reference, std::uint64_t seed);
  /// Collective; this rank's own verdict on the contents that the execution has now.
  Verdict run(const Execution& execution, Bootstrap& bootstrap, const Injection& injection);

 private:
  void give_hints(const Execution& execution, Bootstrap& bootstrap);
  void check_slot(const Execution& execution, const Tensor& tensor, TensorId id, int slot,
                  Bootstrap& bootstrap, Verdict& verdict);

  const Program& program_;
  std::uint64_t seed_;
  std::unique_ptr<Reference> reference_;
  std::map<std::string, std::vector<std::int32_t>> hints_;
};

/// This rank's own verdict. Collective. Run-time counts are put back; the data are test patterns
/// afterwards.
Verdict verify_exchange(Execution& execution, Bootstrap& bootstrap, const Injection& injection);

/// Collective. Both checks, agreed on by all ranks. Leaves the execution with valid contents.
Verdict verify(Execution& execution, ResultCheck& check, Bootstrap& bootstrap,
               const Injection& injection);

}  // namespace weft
