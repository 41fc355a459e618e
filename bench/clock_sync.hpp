// The common start of an iteration. On one host all ranks read one clock, so they agree on an
// instant; where ranks outnumber cores, or hosts differ, a barrier stands in for it and the row
// says so.
#pragma once

#include <string_view>

#include "transports/bootstrap.hpp"

namespace weft {

/// Microseconds of CLOCK_MONOTONIC: never set back, the same for all processes of a host.
double monotonic_us();

class CommonStart {
 public:
  /// Collective. Chooses "clock" where all ranks share one host and none shares a core, else
  /// "barrier".
  CommonStart(Bootstrap& bootstrap, bool oversubscribed);

  struct Start {
    double at_us = 0;   // when this rank's iteration counts as started
    bool late = false;  // the agreed instant had passed when this rank was ready
  };
  /// Collective: returns when the iteration may begin.
  Start wait();
  /// Told after each block how many of its starts were late (the same on all ranks): widens the
  /// margin, and falls back to the barrier where even a wide one does not hold, as on a machine
  /// with other work.
  void adapt(int late, int starts);
  std::string_view name() const { return clock_ ? "clock" : "barrier"; }

 private:
  Bootstrap& bootstrap_;
  bool clock_;
  double margin_us_;  // from the last rank's readiness to the agreed instant
};

}  // namespace weft
