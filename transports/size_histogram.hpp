// How many of which size: of messages, flows, packets. Exact, and small where sizes repeat.
//
//   SizeHistogram sizes;
//   sizes.add(4096, 200); sizes.add(17);
//   sizes.percentile(0.5);            // 4096
#pragma once

#include <cstdint>
#include <map>

#include "patterns/types.hpp"

namespace weft {

class SizeHistogram {
 public:
  /// `count` things of `size` bytes each; none where count is 0 or less.
  void add(Bytes size, std::int64_t count = 1) {
    if (count > 0) counts_[size] += count;
  }
  void merge(const SizeHistogram& other) {
    for (const auto& [size, count] : other.counts_) add(size, count);
  }

  bool empty() const { return counts_.empty(); }
  std::int64_t count() const;
  Bytes total() const;  // sum of all sizes
  /// 0 where it is empty, as are the next two.
  Bytes min() const { return empty() ? 0 : counts_.begin()->first; }
  Bytes max() const { return empty() ? 0 : counts_.rbegin()->first; }
  /// Nearest rank, 0 < share <= 1: the smallest size that at least `share` of all things do not
  /// exceed. Of an even number of things, the median is the lower of the two in the middle.
  Bytes percentile(double share) const;
  /// Of at least `size` bytes: how many, and their bytes.
  std::int64_t count_from(Bytes size) const;
  Bytes total_from(Bytes size) const;

  const std::map<Bytes, std::int64_t>& counts() const { return counts_; }  // by size
  bool operator==(const SizeHistogram&) const = default;

 private:
  std::map<Bytes, std::int64_t> counts_;
};

}  // namespace weft
