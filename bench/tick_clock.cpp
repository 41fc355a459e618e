#include "bench/tick_clock.hpp"

#include <fstream>
#include <string>
#include <utility>

namespace weft {
namespace {

constexpr double kStretchUs = 100e3;
constexpr double kFirstRateUs = 20e3;  // two readings of +-20 ns each are then good to 2e-6
constexpr double kNextRateUs = 1e6;    // the clock's own rate follows what NTP tells it
constexpr int kTries = 4;

#if defined(__x86_64__)
constexpr bool kHasCounter = true;
std::uint64_t ticks() { return __builtin_ia32_rdtsc(); }
#else
constexpr bool kHasCounter = false;
std::uint64_t ticks() { return 0; }
#endif

}  // namespace

// The kernel has compared the counters of all processors with each other and with other clocks.
bool TickClock::kernel_keeps_time_by_counter() {
  std::string name;
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> name;
  return kHasCounter && name == "tsc";
}

TickClock::TickClock(Clock clock, bool counter)
    : clock_(std::move(clock)), counter_(counter && kHasCounter) {}

// A reading that was interrupted between counter and clock would shift all that follows.
TickClock::Point TickClock::read_both() {
  Point best;
  std::uint64_t width = 0;
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = ticks_in_order();
    const double us = clock_();
    const std::uint64_t around = ticks_in_order() - before;
    if (i == 0 || around < width) {
      best = {us, before + around / 2};
      width = around;
    }
    if (narrowest_ > 0 && width < 2 * narrowest_) break;
  }
  if (narrowest_ == 0 || width < narrowest_) narrowest_ = width;
  return best;
}

double TickClock::anchor() {
  if (!counter_) return clock_();
  anchor_ = read_both();
  if (base_.ticks == 0) base_ = anchor_;
  const double span = anchor_.us - base_.us;
  if (span >= kNextRateUs || (us_per_tick_ == 0 && span >= kFirstRateUs)) {
    us_per_tick_ = span / static_cast<double>(anchor_.ticks - base_.ticks);
    stretch_ = static_cast<std::uint64_t>(kStretchUs / us_per_tick_);
    if (span >= kNextRateUs) base_ = anchor_;
  }
  return anchor_.us;
}

std::uint64_t TickClock::mark_of_clock() const {
  return kOfClock | static_cast<std::uint64_t>(clock_() * 1e3);
}

double TickClock::us_of(std::uint64_t mark) const {
  if ((mark & kOfClock) != 0) return static_cast<double>(mark & ~kOfClock) / 1e3;
  return anchor_.us + static_cast<double>(mark - anchor_.ticks) * us_per_tick_;
}

double TickClock::wait_until(double us) const {
  double now = now_us();
  if (us_per_tick_ == 0 || us - anchor_.us >= kStretchUs) {
    while (now < us) now = clock_();
    return now;
  }
  while (now < us) {
    now = anchor_.us + static_cast<double>(ticks() - anchor_.ticks) * us_per_tick_;
  }
  return now;
}

}  // namespace weft
