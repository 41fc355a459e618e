// Order statistics against tables and hand numbers.
#include "bench/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

namespace weft {
namespace {

/// 1, 2, ..., n, in falling order: an order statistic's value is its rank.
std::vector<double> ranks(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

struct KnownInterval {
  int n, low, high;
};

class MedianInterval : public testing::TestWithParam<KnownInterval> {};

TEST_P(MedianInterval, HasTheTabledRanks) {
  const Summary summary = summarise(ranks(GetParam().n));
  EXPECT_EQ(summary.ci_low, GetParam().low);
  EXPECT_EQ(summary.ci_high, GetParam().high);
}

// Ranks from published tables of the sign test's interval (two-sided, at least 95%).
INSTANTIATE_TEST_SUITE_P(Tables, MedianInterval,
                         testing::Values(KnownInterval{6, 1, 6}, KnownInterval{8, 1, 8},
                                         KnownInterval{9, 2, 8}, KnownInterval{10, 2, 9},
                                         KnownInterval{15, 4, 12}, KnownInterval{20, 6, 15},
                                         KnownInterval{25, 8, 18}, KnownInterval{50, 18, 33},
                                         KnownInterval{100, 40, 61},
                                         KnownInterval{1000, 469, 532}));

TEST(Statistics, IntervalNeedsSixSamples) {
  EXPECT_TRUE(std::isnan(summarise(ranks(5)).ci_low));
  EXPECT_TRUE(std::isnan(summarise(ranks(5)).ci_high));
}

TEST(Statistics, IntervalIsSteadyWhereTheNormalLimitTakesOver) {
  const Summary exact = summarise(ranks(1000)), limit = summarise(ranks(1001));
  EXPECT_NEAR(limit.ci_low - exact.ci_low, 0.5, 1.0);
  EXPECT_EQ(limit.ci_low + limit.ci_high, 1002);
}

TEST(Statistics, CoversTheMedianAsPromised) {
  // P(X_(l) <= median <= X_(u)) = sum of binomials from l to u-1, from an independent log-gamma
  // form.
  for (int n : {6, 17, 40, 333}) {
    const Summary summary = summarise(ranks(n));
    const auto coverage = [n](int low, int high) {
      double sum = 0;
      for (int k = low; k < high; ++k) {
        sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) -
                        n * std::log(2.0));
      }
      return sum;
    };
    const int low = static_cast<int>(summary.ci_low), high = static_cast<int>(summary.ci_high);
    EXPECT_GE(coverage(low, high), 0.95) << n;
    EXPECT_LT(coverage(low + 1, high - 1), 0.95) << n << ": a narrower interval would do";
  }
}

TEST(Statistics, MomentsAndQuantilesByHand) {
  const Summary summary = summarise({4, 1, 3, 2});
  EXPECT_EQ(summary.n, 4);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 4);
  EXPECT_DOUBLE_EQ(summary.p50, 2.5);
  EXPECT_DOUBLE_EQ(summary.mean, 2.5);
  EXPECT_DOUBLE_EQ(summary.stddev, std::sqrt(5.0 / 3.0));
}

TEST(Statistics, QuantileInterpolatesLikeTypeSeven) {
  const std::vector<double> sorted{10, 20, 30, 40, 50};
  EXPECT_DOUBLE_EQ(quantile(sorted, 0), 10);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.1), 14);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.95), 48);
  EXPECT_DOUBLE_EQ(quantile(sorted, 1), 50);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(Statistics, TailsAreBlankWithTooFewSamples) {
  EXPECT_TRUE(std::isnan(summarise(ranks(59)).p95));
  EXPECT_DOUBLE_EQ(summarise(ranks(60)).p95, 1 + 0.95 * 59);
  EXPECT_TRUE(std::isnan(summarise(ranks(299)).p99));
  EXPECT_DOUBLE_EQ(summarise(ranks(300)).p99, 1 + 0.99 * 299);
}

TEST(Statistics, OneSampleAndNone) {
  const Summary one = summarise({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_TRUE(std::isnan(one.stddev));
  const Summary none = summarise({});
  EXPECT_EQ(none.n, 0);
  EXPECT_TRUE(std::isnan(none.p50));
  EXPECT_TRUE(std::isnan(none.max));
}

// Independent samples are worth what they are; a random walk's neighbours tell little.
TEST(EffectiveSamples, CountAutocorrelation) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> independent, correlated;
  double walk = 0;
  constexpr double kKeep = 0.9;  // AR(1)
  for (int i = 0; i < 10000; ++i) {
    independent.push_back(normal(random));
    walk = kKeep * walk + std::sqrt(1 - kKeep * kKeep) * normal(random);
    correlated.push_back(walk);
  }
  EXPECT_GT(effective_samples(independent), 6000);
  EXPECT_LE(effective_samples(independent), 10000);
  // The sign of a Gaussian AR(1) has autocorrelation 2/pi asin(r^k); the inflation of its mean's
  // variance is 1 + 2 sum of these.
  double inflation = 1;
  for (int lag = 1; lag < 200; ++lag) {
    inflation += 2 * (2 / std::numbers::pi) * std::asin(std::pow(kKeep, lag));
  }
  EXPECT_NEAR(effective_samples(correlated), 10000 / inflation, 0.5 * 10000 / inflation);
  EXPECT_EQ(effective_samples({1, 1, 1, 2}), 4);  // too few to tell
  EXPECT_EQ(effective_samples(std::vector<double>(100, 3.0)), 100);
}

// The interval of a median of correlated samples covers the true median as often as it promises.
TEST(EffectiveSamples, IntervalCoversTheMedianOfCorrelatedSamples) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  int covered = 0, covered_naively = 0;
  constexpr int kRuns = 400;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> samples;
    double walk = normal(random);
    for (int i = 0; i < 2000; ++i) {
      walk = 0.8 * walk + 0.6 * normal(random);
      samples.push_back(walk);
    }
    const Summary corrected = summarise(samples, effective_samples(samples));
    covered += corrected.ci_low <= 0 && 0 <= corrected.ci_high;
    const Summary naive = summarise(samples);
    covered_naively += naive.ci_low <= 0 && 0 <= naive.ci_high;
  }
  EXPECT_GT(covered, 0.88 * kRuns);
  EXPECT_LT(covered_naively, 0.75 * kRuns);
}

}  // namespace
}  // namespace weft
