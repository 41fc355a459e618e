#include "transports/verbs_options.hpp"

namespace weft {

std::string_view to_string(QueuePairMode mode) {
  return mode == QueuePairMode::split ? "split" : "round-robin";
}

std::string_view to_string(SignalMode mode) {
  return mode == SignalMode::write ? "write" : "immediate";
}

}  // namespace weft
