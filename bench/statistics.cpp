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
constexpr std::size_t kFewestForBatches = 40;
constexpr int kSamplesForP95 = 60;
constexpr int kSamplesForP99 = 300;
constexpr int kSamplesForP999 = 3000;

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

// With fewer effective samples the interval's ends stand at the same shares of the samples as they
// would of the effective ones.
void set_median_interval(const std::vector<double>& sorted, double n_effective, Summary& summary) {
  const int effective = static_cast<int>(n_effective);
  const int rank = lower_rank(effective);
  if (rank < 1) return;
  const int low = effective == summary.n
                      ? rank
                      : std::max(1, static_cast<int>(rank * (summary.n / n_effective)));
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

double effective_samples(const std::vector<double>& in_time_order) {
  const auto n = in_time_order.size();
  if (n < kFewestForBatches) return static_cast<double>(n);
  std::vector<double> sorted = in_time_order;
  std::sort(sorted.begin(), sorted.end());
  const double median = quantile(sorted, 0.5);
  const auto batch = static_cast<std::size_t>(std::sqrt(static_cast<double>(n)));
  const std::size_t batches = n / batch;
  std::vector<double> shares;
  for (std::size_t b = 0; b < batches; ++b) {
    double below = 0;
    for (std::size_t i = b * batch; i < (b + 1) * batch; ++i) {
      below += in_time_order[i] < median ? 1.0 : in_time_order[i] == median ? 0.5 : 0.0;
    }
    shares.push_back(below / static_cast<double>(batch));
  }
  const double mean = std::accumulate(shares.begin(), shares.end(), 0.0) / shares.size();
  const double spread = standard_deviation(shares, mean);
  const double inflation = spread * spread / (0.25 / static_cast<double>(batch));
  return static_cast<double>(n) / std::max(1.0, inflation);
}

Summary summarise(std::vector<double> samples, double n_effective) {
  std::sort(samples.begin(), samples.end());
  Summary summary;
  summary.n = static_cast<int>(samples.size());
  summary.p95 = summary.p99 = summary.p999 = summary.ci_low = summary.ci_high = kNaN;
  summary.p50 = quantile(samples, 0.5);
  if (summary.n >= kSamplesForP95) summary.p95 = quantile(samples, 0.95);
  if (summary.n >= kSamplesForP99) summary.p99 = quantile(samples, 0.99);
  if (summary.n >= kSamplesForP999) summary.p999 = quantile(samples, 0.999);
  summary.min = samples.empty() ? kNaN : samples.front();
  summary.max = samples.empty() ? kNaN : samples.back();
  summary.mean =
      samples.empty() ? kNaN : std::accumulate(samples.begin(), samples.end(), 0.0) / summary.n;
  summary.stddev = standard_deviation(samples, summary.mean);
  set_median_interval(samples, n_effective > 0 ? n_effective : summary.n, summary);
  return summary;
}

}  // namespace weft
