#include "patterns/partition.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {

namespace {

void require_parts(Index total, int parts) {
  if (parts < 1 || total < 0) {
    fail_usage(fmt::format(
        "cannot split {} items into {} parts; at least one part and no negative count are needed",
        total, parts));
  }
}

/// The multiples of `parts` on both sides of `total`, for the remedy of an error.
std::string nearest_multiples(Index total, int parts) {
  const Index below = total / parts * parts;
  return below > 0 ? fmt::format("{} or {}", below, below + parts) : fmt::format("{}", parts);
}

}  // namespace

Part part_of(Index total, int parts, int index) {
  require_parts(total, parts);
  if (index < 0 || index >= parts) {
    fail_usage(
        fmt::format("part {} of {} parts does not exist; the last is {}", index, parts, parts - 1));
  }
  const Index base = total / parts;
  const Index longer = total % parts;
  return {.begin = base * index + std::min<Index>(index, longer),
          .size = base + (index < longer ? 1 : 0)};
}

std::vector<Index> part_sizes(Index total, int parts) {
  require_parts(total, parts);
  std::vector<Index> sizes(static_cast<std::size_t>(parts), total / parts);
  std::fill_n(sizes.begin(), total % parts, total / parts + 1);
  return sizes;
}

Index divide_exactly(Index total, int parts, std::string_view what, std::string_view by) {
  require_parts(total, parts);
  if (total % parts != 0) {
    fail_usage(fmt::format("{} {} does not divide by {} {}; choose {} {}, or a {} that divides {}",
                           what, total, by, parts, what, nearest_multiples(total, parts), by,
                           total));
  }
  return total / parts;
}

Index padded(Index total, int parts) {
  require_parts(total, parts);
  return (total + parts - 1) / parts * parts;
}

}  // namespace weft
