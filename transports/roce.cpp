#include "transports/roce.hpp"

namespace weft {

std::uint16_t roce_source_port(std::uint32_t local_queue_pair, std::uint32_t remote_queue_pair,
                               std::uint32_t flow_label) {
  std::uint32_t label = flow_label;
  if (label == 0) {
    std::uint64_t v = std::uint64_t{local_queue_pair} * remote_queue_pair;
    v ^= v >> 20;
    v ^= v >> 40;
    label = static_cast<std::uint32_t>(v & 0xFFFFF);
  }
  return static_cast<std::uint16_t>(((label & 0x3FFF) ^ (label >> 14)) | 0xC000);
}

}  // namespace weft
