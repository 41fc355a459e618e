// The measurement: what a sample is, when it stops, and that all ranks see the same.
#include "bench/measure.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
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

StoppingRule short_rule() {
  StoppingRule rule;
  rule.min_time_us = 0;
  rule.max_time_us = 30e3;
  return rule;
}

TEST(Measure, ASampleIsTheTimeOfTheSlowestRank) {
  std::vector<Measurement> results(2);
  on_ranks(2, [&](Bootstrap& bootstrap) {
    CommonStart start(bootstrap, true);
    results[static_cast<std::size_t>(bootstrap.rank())] =
        measure(bootstrap, start, short_rule(), [&] {
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
    CommonStart start(bootstrap, true);
    const Measurement m = measure(bootstrap, start, short_rule(), [] {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    });
    const auto expected =
        bootstrap.rank() == 0 ? static_cast<std::size_t>(3 * (m.summary.n + m.late)) : 0u;
    EXPECT_EQ(m.raw.size(), expected);
  });
}

TEST(Measure, StopsAtPrecisionOrAtTheLongestTime) {
  on_ranks(1, [](Bootstrap& bootstrap) {
    CommonStart start(bootstrap, true);
    StoppingRule rule = short_rule();
    rule.precision = 1.0;  // any sample is precise enough
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::microseconds(1000)); };
    EXPECT_EQ(measure(bootstrap, start, rule, sleep).stop_reason, "precision");
    rule.precision = 0;  // none ever is
    const Measurement m = measure(bootstrap, start, rule, sleep);
    EXPECT_EQ(m.stop_reason, "max_time");
    EXPECT_LE(m.summary.n, 60);  // 30 ms of samples of at least 1 ms, and one block beyond
  });
}

TEST(Measure, IterationsWithoutWorkEnd) {
  on_ranks(2, [](Bootstrap& bootstrap) {
    CommonStart start(bootstrap, true);
    StoppingRule rule = short_rule();
    rule.max_time_us = 1e3;
    EXPECT_GT(measure(bootstrap, start, rule, [] {}).summary.n, 0);
  });
}

TEST(CommonStart, FallsBackToTheBarrierWhereItIsAlwaysLate) {
  on_ranks(1, [](Bootstrap& bootstrap) {
    CommonStart start(bootstrap, false);
    EXPECT_EQ(start.name(), "clock");
    start.adapt(1, 100);
    EXPECT_EQ(start.name(), "clock");  // a late one now and then is what `late` is for
    for (int i = 0; i < 20; ++i) start.adapt(90, 100);
    EXPECT_EQ(start.name(), "barrier");
  });
}

}  // namespace
}  // namespace weft
