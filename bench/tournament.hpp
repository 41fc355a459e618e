// Which pairs of ranks are measured at the same time: rounds of disjoint pairs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

struct RankPair {
  Rank a = 0, b = 0;
  bool operator==(const RankPair&) const = default;
};
using PairRound = std::vector<RankPair>;  // no rank twice

/// Every pair of `ranks` ranks once, a < b: n-1 rounds where n is even, n rounds with one rank idle
/// where it is odd; none for one rank. The circle method: rank n-1 stands still, the others go
/// round.
std::vector<PairRound> tournament(int ranks);

/// Pairs in as few rounds as first-fit makes, in their order.
std::vector<PairRound> disjoint_rounds(const std::vector<RankPair>& pairs);

/// "a b" a line, ranks below `ranks`; '#' begins a comment. Throws Error(usage) naming `name` and
/// line: not two ranks, a rank that there is not, a rank with itself, a pair that stands there
/// twice, no pair at all.
std::vector<RankPair> parse_pairs(std::string_view text, const std::string& name, int ranks);
/// Throws Error(usage) if the file cannot be read, else as parse_pairs().
std::vector<RankPair> read_pairs(const std::string& path, int ranks);

}  // namespace weft
