#include "kernels/buffer_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/control_group.hpp"

namespace weft {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();

/// The number a text starts with; nothing for "max" and other words.
std::optional<Bytes> number(std::string_view text) {
  const auto start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  Bytes value = 0;
  const auto result = std::from_chars(text.data() + start, text.data() + text.size(), value);
  // "No limit" of cgroup v1 and some containers is a huge number, which may not fit.
  if (result.ec == std::errc::result_out_of_range) return kUnlimited;
  if (result.ec != std::errc{}) return std::nullopt;
  return value;
}

std::optional<Bytes> number_in(const std::string& file) {
  std::ifstream stream(file);
  std::string line;
  if (!std::getline(stream, line)) return std::nullopt;
  return number(line);
}

/// The number behind `key` in a file of lines "key value" or "key: value".
std::optional<Bytes> number_after(const std::string& file, std::string_view key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(key)) return number(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

/// One of the two kinds of memory controller: how its files are called.
struct Controller {
  ControlGroups version;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: page cache that is given up on demand
  const char* shown;
};
constexpr Controller kV2{ControlGroups::v2, "memory.max", "memory.current", "inactive_file ",
                         "cgroup memory.max"};
constexpr Controller kV1{ControlGroups::v1, "memory.limit_in_bytes", "memory.usage_in_bytes",
                         "total_inactive_file ", "cgroup memory.limit_in_bytes"};

/// Room in the group at `directory` alone.
Bytes room_in(const std::string& directory, const Controller& controller) {
  const auto limit = number_in(directory + "/" + controller.limit);
  const auto usage = number_in(directory + "/" + controller.usage);
  // Half of the 64-bit range: what cgroup v1 shows for "none" is rounded to pages.
  if (!limit || !usage || *limit > kUnlimited / 2) return kUnlimited;
  const Bytes cache = number_after(directory + "/memory.stat", controller.reclaimable).value_or(0);
  return std::max<Bytes>(0, *limit - *usage + cache);
}

/// The tightest group on the way from this process's group to the mount point.
FreeMemory cgroup_room(const std::string& root, const Controller& controller) {
  FreeMemory result{kUnlimited, controller.shown};
  for (const std::string& level : control_group_levels(root, "memory", controller.version))
    result.bytes = std::min(result.bytes, room_in(level, controller));
  return result;
}

FreeMemory address_room(const std::string& root, Bytes limit) {
  const Bytes pages = number_in(root + "/proc/self/statm").value_or(0);
  const Bytes used = pages * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  return {limit < 0 ? kUnlimited : std::max<Bytes>(0, limit - used), "RLIMIT_AS"};
}

}  // namespace

FreeMemory free_memory_under(const std::string& root, Bytes address_space) {
  const Bytes kib =
      number_after(root + "/proc/meminfo", "MemAvailable:").value_or(kUnlimited / 1024);
  FreeMemory least{kib * 1024, "MemAvailable"};
  for (FreeMemory& other : std::vector{cgroup_room(root, kV2), cgroup_room(root, kV1),
                                       address_room(root, address_space)}) {
    if (other.bytes < least.bytes) least = std::move(other);
  }
  return least;
}

FreeMemory free_memory() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return free_memory_under("", limited ? static_cast<Bytes>(limit.rlim_cur) : -1);
}

}  // namespace weft
