// Order statistics of samples.
#pragma once

#include <vector>

namespace weft {

struct Summary {
  int n = 0;
  double min = 0, p50 = 0, p95 = 0, p99 = 0, p999 = 0, max = 0, mean = 0,
         stddev = 0;               // p95 NaN below 60 samples, p99 below 300, p99.9 below 3000
  double ci_low = 0, ci_high = 0;  // 95% interval of the median; NaN below 6 (effective) samples
};

/// Quantiles are by linear interpolation between order statistics (Hyndman-Fan type 7). The
/// interval of the median is by order statistics: ranks from the binomial distribution (n, 1/2),
/// exact to n = 1000 and by its normal limit above.
///
/// `n_effective`: independent samples that these are worth (0: all of them); the interval is that
/// of so many.
Summary summarise(std::vector<double> samples, double n_effective = 0);

/// What samples in time order are worth as independent ones, for their median: n divided by how
/// much more the share of samples below the median varies between batches of sqrt(n) successive
/// samples than it would without autocorrelation (method of batch means; never more than n, and n
/// below 40 samples, too few to tell).
double effective_samples(const std::vector<double>& in_time_order);

/// Quantile of sorted values, 0 <= q <= 1.
double quantile(const std::vector<double>& sorted, double q);

}  // namespace weft
