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
///
/// Where a reading's own time counts, mark() takes it and us_of() says later what it means.
class TickClock {
 public:
  using Clock = std::function<double()>;  // us
  explicit TickClock(Clock clock, bool counter = kernel_keeps_time_by_counter());

  /// The clock now, us; from here on now_us() counts ticks.
  double anchor();
  double now_us() const { return us_of(mark()); }
  /// A reading in as few instructions as there are, for us_of() before the next anchor.
  std::uint64_t mark() const {
    const std::uint64_t now = ticks_in_order();
    return now - anchor_.ticks < stretch_ ? now : mark_of_clock();
  }
  double us_of(std::uint64_t mark) const;
  /// Spins until now_us() reaches `us`; returns what it then is.
  double wait_until(double us) const;

  static bool kernel_keeps_time_by_counter();

 private:
  struct Point {
    double us = 0;
    std::uint64_t ticks = 0;
  };
  static constexpr std::uint64_t kOfClock = std::uint64_t{1} << 63;  // a mark: ns of the clock
  static std::uint64_t ticks_in_order() {
#if defined(__x86_64__)
    unsigned cpu = 0;
    return __builtin_ia32_rdtscp(&cpu);  // after all instructions before it
#else
    return 0;
#endif
  }
  Point read_both();
  std::uint64_t mark_of_clock() const;

  Clock clock_;
  bool counter_;
  Point anchor_, base_;          // base_: where the measurement of the rate began
  double us_per_tick_ = 0;       // 0: not known yet
  std::uint64_t stretch_ = 0;    // ticks after an anchor in which they count
  std::uint64_t narrowest_ = 0;  // ticks around one reading of the clock, at best
};

}  // namespace weft
