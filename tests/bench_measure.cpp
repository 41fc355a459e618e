// The measurement: what a sample is, when it stops, and that all ranks see the same.
#include "bench/measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <ranges>
#include <thread>

namespace weft {
namespace {

// Runs `body` on n ranks that are threads of this process.
void on_ranks(int n, const std::function<void(Bootstrap&)>& body) {
  auto bootstraps = make_thread_bootstraps(n);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&body, &bootstrap] { body(*bootstrap); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// One contestant on a quiet or a busy machine: the figures below hold on both.
Measurement measure_one(Bootstrap& bootstrap, bool oversubscribed, const StoppingRule& rule,
                        const std::function<void()>& iteration) {
  const HostClocks clocks(bootstrap, bootstrap.host_leaders());
  CommonStart start(bootstrap, clocks, oversubscribed);
  NoiseMeter noise(bootstrap);
  const Contestant contestant{iteration};
  return measure({bootstrap, start, noise}, rule, std::span(&contestant, 1)).front();
}

StoppingRule short_rule() {
  StoppingRule rule;
  rule.min_time_us = 0;
  rule.max_time_us = 30e3;
  return rule;
}

TEST(Measure, ASampleIsTheTimeOfTheSlowestRank) {
  std::vector<Measurement> results(2);
  on_ranks(2, [&](Bootstrap& bootstrap) {
    results[static_cast<std::size_t>(bootstrap.rank())] =
        measure_one(bootstrap, true, short_rule(), [&] {
          std::this_thread::sleep_for(
              std::chrono::microseconds(bootstrap.rank() == 1 ? 3000 : 100));
        });
  });
  EXPECT_GE(results[0].summary.min, 3000);
  EXPECT_EQ(results[0].summary.p50, results[1].summary.p50);
  EXPECT_EQ(results[0].summary.n, results[1].summary.n);
  EXPECT_EQ(results[0].sync, "barrier");
  EXPECT_GE(results[0].first_us, 3000);
}

TEST(Measure, EverySampleOfEveryRankIsKeptOnRankZero) {
  on_ranks(3, [](Bootstrap& bootstrap) {
    const Measurement m = measure_one(bootstrap, true, short_rule(), [] {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    });
    // Of noisy attempts too, each under its number.
    std::map<int, std::size_t> of_attempt;
    for (const auto& sample : m.raw) ++of_attempt[sample.attempt];
    EXPECT_EQ(of_attempt.size(), bootstrap.rank() == 0 ? m.attempts : 0u);
    const auto kept = static_cast<std::size_t>(3 * (m.summary.n + m.late));
    EXPECT_EQ(bootstrap.rank() != 0, std::ranges::none_of(of_attempt, [&](const auto& entry) {
                return entry.second == kept;
              }));
  });
}

TEST(Measure, StopsAtPrecisionOrAtTheLongestTime) {
  on_ranks(1, [](Bootstrap& bootstrap) {
    StoppingRule rule = short_rule();
    rule.precision = 1.0;  // any sample is precise enough
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::microseconds(1000)); };
    EXPECT_EQ(measure_one(bootstrap, true, rule, sleep).stop_reason, "precision");
    rule.precision = 0;  // none ever is
    const Measurement m = measure_one(bootstrap, true, rule, sleep);
    EXPECT_EQ(m.stop_reason, "max_time");
    EXPECT_LE(m.summary.n, 60);  // 30 ms of samples of at least 1 ms, and one block beyond
  });
}

// Of more iterations than are kept every second stays, again and again: spread over all of the
// time.
TEST(Measure, TheLeastTimeIsKeptWithBoundedSamples) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    StoppingRule rule;
    rule.precision = 1.0;
    rule.min_time_us = 200e3;
    rule.max_samples = 64;
    const Measurement m = measure_one(
        bootstrap, true, rule, [] { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
    EXPECT_EQ(m.stop_reason, "precision");
    EXPECT_LE(m.summary.n, 2 * 64 + 500);  // a block of at most 500 beyond what is kept
    if (bootstrap.rank() != 0) return;
    std::vector<std::int64_t> iterations;
    double last_us = 0;
    for (const auto& sample : m.raw) {
      if (sample.attempt != m.attempts) continue;
      last_us = std::max(last_us, sample.end_us);
      if (sample.rank == 0) iterations.push_back(sample.iteration);
    }
    ASSERT_GT(iterations.size(), 8u);
    const std::int64_t stride = iterations[1] - iterations[0];
    EXPECT_GT(stride, 1);
    EXPECT_EQ(stride & (stride - 1), 0) << stride;
    for (std::size_t i = 1; i < iterations.size(); ++i) {
      EXPECT_EQ(iterations[i] - iterations[i - 1], stride);
    }
    EXPECT_GE(last_us, 180e3);
    EXPECT_GE(iterations.back() - iterations.front(), 200);
  });
}

TEST(Measure, StrideDoublesOnlyBeforeTheLeastTime) {
  StoppingRule rule;
  rule.min_time_us = 1000;
  rule.max_samples = 4;
  SampleStride stride;
  EXPECT_FALSE(stride.widen(3, rule, 10));
  EXPECT_TRUE(stride.keeps(1));
  EXPECT_TRUE(stride.widen(4, rule, 10));
  EXPECT_TRUE(stride.keeps(0) && stride.keeps(2) && !stride.keeps(3));
  EXPECT_FALSE(stride.widen(4, rule, 1000));
  EXPECT_TRUE(stride.keeps(2));
  std::vector<int> odd{0, 1, 2, 3, 4}, even{0, 1, 2, 3}, none;
  keep_every_second(odd);
  keep_every_second(even);
  keep_every_second(none);
  EXPECT_EQ(odd, (std::vector{0, 2, 4}));
  EXPECT_EQ(even, (std::vector{0, 2}));
  EXPECT_TRUE(none.empty());
}

TEST(Measure, IterationsWithoutWorkEnd) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    StoppingRule rule = short_rule();
    rule.max_time_us = 1e3;
    EXPECT_GT(measure_one(bootstrap, true, rule, [] {}).summary.n, 0);
  });
}

// Two contestants in turns: each has its own samples, and both are timed all along, not one after
// the other.
TEST(Measure, ContestantsAlternateInBlocks) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, true);
    NoiseMeter noise(bootstrap);
    std::vector<int> order;
    int ended = 0;
    const auto pause = [&order](int who, int us) {
      return [&order, who, us] {
        order.push_back(who);
        std::this_thread::sleep_for(std::chrono::microseconds(us));
      };
    };
    const std::vector<Contestant> contestants{{pause(0, 1000), [&] { ++ended; }},
                                              {pause(1, 3000), [&] { ++ended; }}};
    StoppingRule rule = short_rule();
    rule.precision = 0;
    rule.max_time_us = 120e3;
    const auto results = measure({bootstrap, start, noise, 7}, rule, contestants);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_GE(results[0].summary.min, 1000);
    EXPECT_GE(results[1].summary.min, 3000);
    EXPECT_EQ(ended, 2);
    const int turns = static_cast<int>(
        std::ranges::count_if(std::views::iota(std::size_t{1}, order.size()),
                              [&](std::size_t i) { return order[i] != order[i - 1]; }));
    EXPECT_GE(turns, 6);                                   // several blocks of each
    EXPECT_LT(turns, static_cast<int>(order.size()) / 2);  // not one by one
  });
}

// Before each timed iteration, and before nothing else.
TEST(Measure, TouchesAheadOfEachStart) {
  on_ranks(1, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, true);
    NoiseMeter noise(bootstrap);
    int touched = 0, iterations = 0;
    bool ready = false, always = true;
    const Contestant contestant{.iteration =
                                    [&] {
                                      ++iterations;
                                      always = always && ready;
                                      ready = false;
                                    },
                                .touch =
                                    [&] {
                                      ++touched;
                                      ready = true;
                                    }};
    measure({bootstrap, start, noise}, short_rule(), std::span(&contestant, 1));
    EXPECT_EQ(touched, iterations);
    EXPECT_TRUE(always);
    EXPECT_GT(touched, 0);
  });
}

// A start that some rank reached late is no sample, but kept.
TEST(Measure, LateStartsAreMarkedAndLeftOut) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, false);
    int late = 0;
    for (int i = 0; i < 200; ++i) {
      const CommonStart::Start begun = start.wait();
      late += begun.late;
      EXPECT_GE(begun.begun_us, begun.at_us);
    }
    EXPECT_LT(late, 200);
  });
}

/// Reads a clock that is `offset_us` ahead of the real one and runs `drift` too fast.
HostClocks::Clock wrong_clock(double offset_us, double drift) {
  const double base = monotonic_us();
  return [=] { return base + offset_us + (monotonic_us() - base) * (1 + drift); };
}

// Ranks with clocks that differ by a day agree on the time to within the residual they state.
TEST(HostClocks, FindOffsetAndDriftOfOtherClocks) {
  std::vector<double> seen(3), residuals(3);
  constexpr double kDay = 86400e6;
  on_ranks(3, [&](Bootstrap& bootstrap) {
    const auto rank = static_cast<std::size_t>(bootstrap.rank());
    const double offsets[] = {0, kDay, -kDay}, drifts[] = {0, 1e-4, -2e-4};
    const auto clock = wrong_clock(offsets[rank], drifts[rank]);
    HostClocks clocks(bootstrap, {0, 1, 2}, clock);
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(520));
      clocks.refresh();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the fit goes on from here
    const double before = monotonic_us();
    seen[rank] = clocks.to_reference(clock()) - before;
    residuals[rank] = clocks.residual_us();
    EXPECT_NEAR(clocks.to_local(clocks.to_reference(12345.0)), 12345.0, 1e-3);
  });
  EXPECT_GT(residuals[0], 0);
  EXPECT_LT(residuals[0], 5e3);
  EXPECT_EQ(residuals[0], residuals[1]);
  // Rank 0's clock is the reference and right. Uncorrected drift alone would be 100 us in the last
  // half second after an error of 50 us at each refresh.
  const double slack = 300;  // a thread may be descheduled between the two readings
  EXPECT_NEAR(seen[1], seen[0], 2 * residuals[0] + slack);
  EXPECT_NEAR(seen[2], seen[0], 2 * residuals[0] + slack);
}

TEST(HostClocks, OneHostHasOneClock) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    EXPECT_EQ(clocks.residual_us(), 0);
    EXPECT_EQ(clocks.to_reference(17.5), 17.5);
  });
}

TEST(CommonStart, FallsBackToTheBarrierWhereItIsAlwaysLate) {
  on_ranks(1, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, false);
    EXPECT_EQ(start.name(), "clock");
    start.adapt(1, 100);
    EXPECT_EQ(start.name(), "clock");  // a late one now and then is what `late` is for
    for (int i = 0; i < 20; ++i) start.adapt(90, 100);
    EXPECT_EQ(start.name(), "barrier");
  });
}

}  // namespace
}  // namespace weft
