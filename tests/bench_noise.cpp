// When a cell counts as noisy, and what the row then says.
#include "bench/noise.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

Noise noise(double load, double steal, double throttled_us) {
  return {LoadShares{load, steal, throttled_us}};
}

TEST(Noise, SaysWhatWasTooMuch) {
  EXPECT_EQ(noise(0.05, 0.02, 0).text(), "quiet");
  EXPECT_EQ(noise(0.06, 0.0, 0).text(), "load");
  EXPECT_EQ(noise(0.0, 0.03, 0).text(), "steal");
  EXPECT_EQ(noise(0.5, 0.5, 100).text(), "load+steal+throttled");
  EXPECT_EQ(noise(std::nan(""), std::nan(""), std::nan("")).text(), "unknown");
  EXPECT_EQ(noise(std::nan(""), std::nan(""), 10).text(), "throttled");
}

TEST(Noise, WhatIsNamedIsNoisyAndNothingElse) {
  for (const Noise& n : {noise(0.051, 0, 0), noise(0, 0.021, 0), noise(0, 0, 1)}) {
    EXPECT_TRUE(n.noisy());
  }
  for (const Noise& n : {noise(0.049, 0.019, 0), noise(std::nan(""), std::nan(""), std::nan(""))}) {
    EXPECT_FALSE(n.noisy());
  }
}

TEST(Noise, QuieterAttemptsAreTold) {
  EXPECT_LT(noise(0.1, 0, 0).badness(), noise(0.2, 0, 0).badness());
  EXPECT_LT(noise(0.1, 0, 0).badness(), noise(0, 0.1, 0).badness());  // stolen time is worse
  EXPECT_LT(noise(0.1, 0, 0).badness(), noise(0, 0, 50).badness());
}

TEST(Noise, AnotherAttemptIsWorthIt) {
  Noise loud;
  loud.other_load = 0.3;
  EXPECT_TRUE(worth_another_attempt(loud, 1, 10, 100));
  EXPECT_TRUE(worth_another_attempt(loud, 2, 49, 100));
  EXPECT_FALSE(worth_another_attempt(loud, 3, 10, 100));
  EXPECT_FALSE(worth_another_attempt(loud, 1, 50, 100));
  EXPECT_FALSE(worth_another_attempt(Noise{}, 1, 10, 100));
}

}  // namespace
}  // namespace weft
