// Clocks that ranks on several hosts can compare, and the common start of an iteration.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "bench/tick_clock.hpp"
#include "transports/bootstrap.hpp"

namespace weft {

/// Microseconds of CLOCK_MONOTONIC: never set back, the same for all processes of a host.
double monotonic_us();

/// The reference clock is rank 0's. Inside a host all ranks read one clock (offset 0); between
/// hosts the lowest rank of each host plays ping-pong with rank 0, keeps the exchange that came
/// back fastest (its error is half its round trip at most), and fits offset and drift over the last
/// exchanges by least squares.
///
///   HostClocks clocks(bootstrap, bootstrap.host_leaders());
///   clocks.refresh_if_due();                       // collective, between cells
///   double when = clocks.to_reference(monotonic_us());
class HostClocks {
 public:
  using Clock = TickClock::Clock;
  /// Collective. `leaders` hold one rank of each clock, rank 0 first; `clock` is this rank's.
  HostClocks(Bootstrap& bootstrap, std::vector<Rank> leaders, Clock clock = monotonic_us);

  /// Collective: a few milliseconds a host, nothing where all ranks share one clock.
  void refresh();
  /// Collective. Refreshes when the last time is kRefreshSeconds ago.
  void refresh_if_due();
  double to_reference(double local_us) const;
  double to_local(double reference_us) const;
  /// Largest error of any rank's conversion that the exchanges allow, us; 0 with one clock. The
  /// same on all ranks.
  double residual_us() const { return residual_us_; }
  double now_us() const { return clock_(); }

 private:
  /// What one exchange found: reference - local = offset, at `local`, known to +-error.
  struct Point {
    double local_us = 0, offset_us = 0, error_us = 0;
  };
  Point exchange(Rank leader);
  Point answer();
  void fit();

  Bootstrap& bootstrap_;
  std::vector<Rank> leaders_;
  Rank my_leader_ = 0;
  Clock clock_;
  std::vector<Point> points_;  // of this host, newest last
  double base_us_ = 0, offset_us_ = 0, drift_ = 0;
  double residual_us_ = 0, refreshed_us_ = 0;
};

/// The instant at which an iteration may begin. All ranks agree on one on the reference clock;
/// where ranks outnumber cores, or agreed instants cannot be kept, a barrier stands in and the row
/// says so.
class CommonStart {
 public:
  /// Collective. "clock", or "barrier" where ranks outnumber cores.
  CommonStart(Bootstrap& bootstrap, const HostClocks& clocks, bool oversubscribed);

  struct Start {
    double at_us = 0;     // reference clock: when this rank's iteration counts as started
    double begun_us = 0;  // reference clock: when it really did
    bool late = false;    // the agreed instant had passed when this rank was ready
  };
  /// Collective: returns when the iteration may begin.
  Start wait();
  /// Collective, between cases: agreed instants again where a busy moment had made them impossible.
  void renew();
  /// The reference clock now.
  double now_us() const { return clocks_.to_reference(ticks_.now_us()); }
  /// Told after each block how many of its starts were late (the same on all ranks): widens the
  /// margin, and falls back to the barrier where even a wide one does not hold, as on a machine
  /// with other work.
  void adapt(int late, int starts);
  std::string_view name() const { return clock_ ? "clock" : "barrier"; }
  double residual_us() const { return clocks_.residual_us(); }

 private:
  Bootstrap& bootstrap_;
  const HostClocks& clocks_;
  TickClock ticks_;
  bool possible_;  // ranks have cores of their own
  bool clock_ = false;
  double margin_us_ = 0;  // from the last rank's readiness to the agreed instant
};

}  // namespace weft
