// Where the kernel says how much memory a process may still have. Private to kernels/buffer*.cpp
// and its tests.
#pragma once

#include <string>

#include "kernels/buffer.hpp"

namespace weft {

/// free_memory() of the machine whose /proc and /sys lie under `root` ("" for this one), for a
/// process that may have `address_space` bytes of addresses (negative: any number). Unreadable
/// files limit nothing.
FreeMemory free_memory_under(const std::string& root, Bytes address_space);

}  // namespace weft
