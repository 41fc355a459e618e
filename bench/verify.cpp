#include "bench/verify.hpp"

namespace weft {
namespace {

// The lowest rank's first failure, and the sums, known to all.
Verdict agree(Bootstrap& bootstrap, const Verdict& mine) {
  Verdict all;
  for (const std::string& why : bootstrap.all_gather(mine.why)) {
    if (!why.empty() && all.passed) {
      all.passed = false;
      all.why = why;
    }
  }
  all.exchanged = static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.exchanged)));
  all.results = static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.results)));
  all.beyond_budget =
      static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.beyond_budget)));
  return all;
}

}  // namespace

Verdict verify(Execution& execution, ResultCheck& check, Bootstrap& bootstrap,
               const Injection& injection) {
  execution.prepare();
  execution.iterate(Phase::serial);
  const Verdict serial = agree(bootstrap, check.run(execution, bootstrap, injection));
  const Verdict exchange = agree(bootstrap, verify_exchange(execution, bootstrap, injection));
  execution.prepare();
  execution.iterate(Phase::overlap);  // the same result must come out of two streams
  const Verdict overlap = agree(bootstrap, check.run(execution, bootstrap, injection));
  Verdict all = !serial.passed ? serial : !exchange.passed ? exchange : overlap;
  all.exchanged = exchange.exchanged;
  all.results = serial.results + overlap.results;
  all.beyond_budget = serial.beyond_budget;
  return all;
}

}  // namespace weft
