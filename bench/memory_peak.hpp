// The most memory that this process had at once.
#pragma once

#include "patterns/types.hpp"

namespace weft {

/// Starts anew: the peak is what the process has now. Where the system does not allow that, the
/// peak stays that of the process's life.
void reset_memory_peak();
/// Resident bytes at their highest since then, shared pages included; -1: unknown.
Bytes memory_peak_bytes();

}  // namespace weft
