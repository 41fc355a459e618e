// Shard arithmetic: which rows, columns, heads or experts a rank owns, also where sizes do not
// divide evenly.
#pragma once

#include <string_view>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

/// Part `index` of `total` items over `parts`: the first total % parts parts have one more.
struct Part {
  Index begin = 0, size = 0;
};
Part part_of(Index total, int parts, int index);

/// Sizes of all parts, in order.
std::vector<Index> part_sizes(Index total, int parts);

/// Where sizes must divide. Throws Error(usage): "<what> <total> does not divide by <by> <parts>;
/// choose ...".
Index divide_exactly(Index total, int parts, std::string_view what, std::string_view by);

/// total rounded up to a multiple of parts.
Index padded(Index total, int parts);

}  // namespace weft
