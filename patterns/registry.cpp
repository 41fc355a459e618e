#include "patterns/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "patterns/error.hpp"

namespace weft {

const std::vector<const Pattern*>& patterns() {
  static const std::vector<const Pattern*> list{
      &tp_allgather_pattern(), &row_allreduce_pattern(), &pp_sendrecv_pattern(),
      &dp_gradsync_pattern(),  &moe_alltoall_pattern(),
  };
  return list;
}

const Pattern& find_pattern(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Pattern* pattern : patterns()) {
    if (pattern->name == name) return *pattern;
    known.push_back(pattern->name);
  }
  fail_usage(
      fmt::format("no pattern is called '{}'; choose one of {}", name, fmt::join(known, ", ")));
}

}  // namespace weft
