#include "transports/verbs_channels.hpp"

namespace weft {

bool Arrivals::take(const Immediate& part) {
#if defined(WEFT_MUTATION_UNORDERED)
  std::uint64_t ahead = 0;  // must be found out by tests/transports_verbs_channels.cpp
  while (entry(count_ + ahead).parts > 0 &&
         entry(count_ + ahead).seen == entry(count_ + ahead).parts) {
    ++ahead;
  }
#else
  const std::uint64_t ahead =
      (part.message - static_cast<std::uint32_t>(count_)) & Immediate::kMessageMask;
#endif
  if (ahead >= entries_.size()) return false;
  Entry& entry = this->entry(count_ + ahead);
  entry.parts = static_cast<std::uint8_t>(part.parts == 0 ? 1 : part.parts);
  if (part.parts == 0) entry.slot = static_cast<std::int16_t>(part.slot);
  return ++entry.seen <= entry.parts;
}

}  // namespace weft
