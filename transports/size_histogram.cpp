#include "transports/size_histogram.hpp"

#include <cmath>
#include <limits>

namespace weft {

std::int64_t SizeHistogram::count() const { return count_from(std::numeric_limits<Bytes>::min()); }

Bytes SizeHistogram::total() const { return total_from(std::numeric_limits<Bytes>::min()); }

std::int64_t SizeHistogram::count_from(Bytes size) const {
  std::int64_t sum = 0;
  for (auto at = counts_.lower_bound(size); at != counts_.end(); ++at) sum += at->second;
  return sum;
}

Bytes SizeHistogram::total_from(Bytes size) const {
  Bytes sum = 0;
  for (auto at = counts_.lower_bound(size); at != counts_.end(); ++at) {
    sum += at->first * at->second;
  }
  return sum;
}

Bytes SizeHistogram::percentile(double share) const {
  // 0.95 is no binary number: without the slack, 95% of 20 might round up to 20.
  const auto rank =
      static_cast<std::int64_t>(std::ceil(share * static_cast<double>(count()) - 1e-9));
  std::int64_t seen = 0;
  for (const auto& [size, count] : counts_) {
    seen += count;
    if (seen >= rank) return size;
  }
  return max();
}

}  // namespace weft
