#include "bench/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kTail = 0.025;          // each side of a 95% interval
constexpr double kNormal975 = 1.959964;  // its normal quantile
constexpr int kExactUpTo = 1000;         // 2^-1000 is still a normal double, 2^-1100 is not
constexpr int kSamplesForP95 = 60;
constexpr int kSamplesForP99 = 300;

/// Largest l with P(X < l) <= 0.025 for X ~ Bin(n, 1/2): order statistics l and n+1-l hold the
/// median with at least 95%. 0: there is none.
int lower_rank(int n) {
  if (n > kExactUpTo) {
    return static_cast<int>((n - kNormal975 * std::sqrt(static_cast<double>(n))) / 2);
  }
  double term = std::ldexp(1.0, -n);  // P(X = 0)
  double below = 0;
  int rank = 0;
  while (below + term <= kTail) {
    below += term;
    term *= static_cast<double>(n - rank) / (rank + 1);
    ++rank;
  }
  return rank;
}

void set_median_interval(const std::vector<double>& sorted, Summary& summary) {
  const int low = lower_rank(summary.n);
  if (low < 1) return;
  summary.ci_low = sorted[static_cast<std::size_t>(low - 1)];
  summary.ci_high = sorted[static_cast<std::size_t>(summary.n - low)];
}

double standard_deviation(const std::vector<double>& samples, double mean) {
  if (samples.size() < 2) return kNaN;
  double squares = 0;
  for (double sample : samples) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

}  // namespace

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return kNaN;
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double share = place - static_cast<double>(below);
  return sorted[below] + share * (sorted[below + 1] - sorted[below]);
}

Summary summarise(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  Summary summary;
  summary.n = static_cast<int>(samples.size());
  summary.p95 = summary.p99 = summary.ci_low = summary.ci_high = kNaN;
  summary.p50 = quantile(samples, 0.5);
  if (summary.n >= kSamplesForP95) summary.p95 = quantile(samples, 0.95);
  if (summary.n >= kSamplesForP99) summary.p99 = quantile(samples, 0.99);
  summary.min = samples.empty() ? kNaN : samples.front();
  summary.max = samples.empty() ? kNaN : samples.back();
  summary.mean =
      samples.empty() ? kNaN : std::accumulate(samples.begin(), samples.end(), 0.0) / summary.n;
  summary.stddev = standard_deviation(samples, summary.mean);
  set_median_interval(samples, summary);
  return summary;
}

}  // namespace weft
