// The clock of samples: against CLOCK_MONOTONIC itself, read around it.
#include "bench/tick_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/clock_sync.hpp"

namespace weft {
namespace {

using namespace std::chrono_literals;

/// Least distance, over some readings, of the clock under test from a reading of `clock` before
/// and one after it; 0 where it lies between them. The least, because this thread may be
/// descheduled between any two.
double distance_from(const TickClock& tested, const TickClock::Clock& clock) {
  double least = 1e9;
  for (int i = 0; i < 50; ++i) {
    const double before = clock(), seen = tested.now_us(), after = clock();
    least = std::min(least, std::max({0.0, before - seen, seen - after}));
  }
  return least;
}

class TickClocks : public testing::TestWithParam<bool> {};  // with a counter or without

TEST_P(TickClocks, FollowTheClockBetweenAnchors) {
  TickClock tested(monotonic_us, GetParam());
  EXPECT_LT(distance_from(tested, monotonic_us), 1);  // before any anchor
  for (int i = 0; i < 12; ++i) {
    tested.anchor();
    std::this_thread::sleep_for(i < 8 ? 10ms : 250ms);  // 250 ms: beyond what ticks are trusted
    EXPECT_LT(distance_from(tested, monotonic_us), 1) << "after anchor " << i;
  }
}

// A clock that runs at half speed, a day ahead: the rate is the clock's, not the processor's.
TEST_P(TickClocks, TakeTheirRateFromTheClock) {
  const double base = monotonic_us();
  const auto slow = [base] { return base + 86400e6 + (monotonic_us() - base) / 2; };
  TickClock tested(slow, GetParam());
  for (int i = 0; i < 10; ++i) {
    tested.anchor();
    std::this_thread::sleep_for(10ms);
    EXPECT_LT(distance_from(tested, slow), 1);
  }
}

// A mark means what the clock showed when it was taken, however much later it is asked, also where
// it was taken so long after the anchor that ticks are not trusted.
TEST_P(TickClocks, MarksKeepTheirMeaning) {
  TickClock tested(monotonic_us, GetParam());
  for (int i = 0; i < 5; ++i) {
    tested.anchor();
    std::this_thread::sleep_for(10ms);
  }
  for (const auto pause : {1ms, 150ms}) {
    std::this_thread::sleep_for(pause);
    double least = 1e9;
    for (int i = 0; i < 50; ++i) {
      const double before = monotonic_us();
      const std::uint64_t mark = tested.mark();
      const double after = monotonic_us();
      if (i % 10 == 0) std::this_thread::sleep_for(1ms);
      const double seen = tested.us_of(mark);
      least = std::min(least, std::max({0.0, before - seen, seen - after}));
    }
    EXPECT_LT(least, 1) << pause.count() << " ms after";
  }
}

// No wait ends early by the clock that it stands for, and some end soon.
TEST_P(TickClocks, WaitUntilTheInstant) {
  TickClock tested(monotonic_us, GetParam());
  double soonest = 1e9;
  for (int i = 0; i < 400; ++i) {
    const double at = tested.anchor() + 200;
    const double ended = tested.wait_until(at), seen = monotonic_us();
    EXPECT_GE(ended, at);
    EXPECT_GT(seen, at - 1);
    soonest = std::min(soonest, seen - at);
  }
  EXPECT_LT(soonest, 5);
  const double past = tested.anchor() - 1000;
  EXPECT_GE(tested.wait_until(past), past + 1000);
}

INSTANTIATE_TEST_SUITE_P(Counter, TickClocks, testing::Bool(),
                         [](const auto& of) { return of.param ? "used" : "unused"; });

}  // namespace
}  // namespace weft
