// A clock read between two of its readings by the processor's counter: finer, and in less time.
#pragma once

#include <cstdint>
#include <functional>

namespace weft {

/// Reading CLOCK_MONOTONIC takes some 25 to 50 ns, which a sample of a microsecond pays at both
/// ends. anchor() reads it together with the processor's time-stamp counter; until the next
/// anchor, now_us() adds the counter's ticks since then, at the rate that earlier anchors showed.
/// Nothing of a rate is carried over more than kStretchUs: longer after an anchor, and where the
/// kernel itself does not keep time by that counter, all readings are the clock's own.
///
///   TickClock clock(monotonic_us);
///   clock.anchor();                          // once an iteration
///   double begun = clock.wait_until(at_us);  // spins
///   double end = clock.now_us();
class TickClock {
 public:
  using Clock = std::function<double()>;  // us
  explicit TickClock(Clock clock, bool counter = kernel_keeps_time_by_counter());

  /// The clock now, us; from here on now_us() counts ticks.
  double anchor();
  double now_us() const;
  /// Spins until now_us() reaches `us`; returns what it then is.
  double wait_until(double us) const;

  static bool kernel_keeps_time_by_counter();

 private:
  struct Point {
    double us = 0;
    std::uint64_t ticks = 0;
  };
  Point read_both();

  Clock clock_;
  bool counter_;
  Point anchor_, base_;          // base_: where the measurement of the rate began
  double us_per_tick_ = 0;       // 0: not known yet
  std::uint64_t narrowest_ = 0;  // ticks around one reading of the clock, at best
};

}  // namespace weft
