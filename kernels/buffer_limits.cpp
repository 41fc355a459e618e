#include "kernels/buffer_limits.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

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
  const char* filesystem;
  bool unified;
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: page cache that is given up on demand
  const char* shown;
};
constexpr Controller kV2{"cgroup2",          true, "memory.max", "memory.current", "inactive_file ",
                         "cgroup memory.max"};
constexpr Controller kV1{"cgroup",
                         false,
                         "memory.limit_in_bytes",
                         "memory.usage_in_bytes",
                         "total_inactive_file ",
                         "cgroup memory.limit_in_bytes"};

/// Whether a list like "rw,memory" has "memory" in it.
bool lists_memory(std::string_view list) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == "memory") return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// Path of this process in the hierarchy: lines "0::/path" (unified) or "4:memory:/path".
std::string group_path(const std::string& root, bool unified) {
  std::ifstream stream(root + "/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (unified ? controllers.empty() : lists_memory(controllers)) return line.substr(second + 1);
  }
  return {};
}

struct Mount {
  std::string group, point;  // what part of the hierarchy is mounted, and where
};

/// mountinfo: "id parent major:minor root mount-point options [optional fields] - type source
/// super-options".
std::optional<Mount> find_mount(const std::string& root, const Controller& controller) {
  std::ifstream stream(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, type, source, options;
    Mount mount;
    left >> id >> parent >> device >> mount.group >> mount.point;
    right >> type >> source >> options;
    if (type != controller.filesystem) continue;
    if (controller.unified || lists_memory(options)) return mount;
  }
  return std::nullopt;
}

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
  const auto mount = find_mount(root, controller);
  if (!mount) return result;
  std::string path = group_path(root, controller.unified);
  // In a container the mounted part may be this very group, seen under its name outside.
  if (mount->group != "/" && (path + "/").starts_with(mount->group + "/")) {
    path.erase(0, mount->group.size());
  }
  while (!path.empty() && path.back() == '/') path.pop_back();
  const std::string top = root + mount->point;
  for (;; path.erase(path.rfind('/'))) {
    result.bytes = std::min(result.bytes, room_in(top + path, controller));
    if (path.find('/') == std::string::npos) return result;
  }
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
