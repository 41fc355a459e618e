#include "bench/memory_peak.hpp"

#include <charconv>
#include <fstream>
#include <string>

namespace weft {

void reset_memory_peak() {
  std::ofstream("/proc/self/clear_refs") << '5';  // proc(5): resets VmHWM
}

Bytes memory_peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    const auto digits = line.find_first_of("0123456789");
    Bytes kibibytes = -1;
    if (digits != std::string::npos) {
      std::from_chars(line.data() + digits, line.data() + line.size(), kibibytes);
    }
    return kibibytes < 0 ? -1 : kibibytes * 1024;
  }
  return -1;
}

}  // namespace weft
