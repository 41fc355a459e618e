// Where the kernel keeps the limits of this process's control group (cgroup v1 and v2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class ControlGroups : std::uint8_t { v1, v2 };

/// Directories of this process's control group: its own first, then each above it up to the top of
/// what is mounted; a limit of any of them holds. Empty: no such hierarchy is mounted.
/// `controller` names a v1 hierarchy ("memory", "cpu"); v2 has one for all. `root` is "" but in
/// tests.
std::vector<std::string> control_group_levels(const std::string& root, std::string_view controller,
                                              ControlGroups version);

}  // namespace weft
