// A counter as a small text file of sysfs, and the tables of /proc/net/snmp. Nothing here throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "transports/shm_segment.hpp"

namespace weft {

/// A number, or why there is none: "says 'N/A (no PMA)'", "is empty", "No such file or directory".
struct CounterValue {
  std::uint64_t value = 0;
  std::string why;
};

/// The number that a text of one line is; blanks around it do not matter.
CounterValue counter_value(std::string_view text);

/// A file that is read again and again.
class CounterFile {
 public:
  CounterFile() = default;
  /// `keep`: stays open between readings.
  CounterFile(std::filesystem::path path, bool keep);
  /// All of it, as it is now; `why` says what went wrong. A file that was removed is gone, also
  /// while it is still open.
  std::string text(std::string& why) const;
  CounterValue value() const;

 private:
  std::filesystem::path path_;
  Descriptor kept_;
};

/// A column of a section of /proc/net/snmp: a line "Tcp: RtoAlgorithm RtoMin ..." and the line of
/// values after it.
CounterValue snmp_value(std::string_view text, std::string_view section, std::string_view column);

/// Names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

}  // namespace weft
