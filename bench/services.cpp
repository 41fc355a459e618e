#include "bench/services.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {

ServiceNeeds needs_of(const StepDemand& demand) {
  if (!demand.sends) return {};
  return {.reliable = true,
          .ordered = demand.signalled || demand.messages_per_pair > 1,
          .exactly_once = demand.signalled || demand.reduces,
          .lossless = demand.fan_in > 1 || demand.rounds > 1};
}

ServiceNeeds needs_of(const std::vector<StepDemand>& demands) {
  ServiceNeeds all;
  for (const StepDemand& demand : demands) all = all | needs_of(demand);
  return all;
}

ServiceNeeds operator|(const ServiceNeeds& a, const ServiceNeeds& b) {
  return needs_from(bits_of(a) | bits_of(b));
}

std::string to_string(const ServiceNeeds& needs) {
  std::vector<std::string_view> names;
  if (needs.reliable) names.emplace_back("reliable");
  if (needs.ordered) names.emplace_back("ordered");
  if (needs.exactly_once) names.emplace_back("exactly once");
  if (needs.lossless) names.emplace_back("lossless");
  return names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
}

int bits_of(const ServiceNeeds& needs) {
  return needs.reliable | needs.ordered << 1 | needs.exactly_once << 2 | needs.lossless << 3;
}

ServiceNeeds needs_from(int bits) {
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
}

}  // namespace weft
