#include "kernels/control_group.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace weft {
namespace {

/// Whether a list like "rw,cpu,cpuacct" has `controller` in it.
bool lists(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == controller) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// Path of this process in the hierarchy: lines "0::/path" (v2) or "4:memory:/path" (v1).
std::string group_path(const std::string& root, std::string_view controller,
                       ControlGroups version) {
  std::ifstream stream(root + "/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto names = std::string_view(line).substr(first + 1, second - first - 1);
    if (version == ControlGroups::v2 ? names.empty() : lists(names, controller))
      return line.substr(second + 1);
  }
  return {};
}

struct Mount {
  std::string group, point;  // what part of the hierarchy is mounted, and where
};

/// mountinfo: "id parent major:minor root mount-point options [optional fields] - type source
/// super-options".
std::optional<Mount> find_mount(const std::string& root, std::string_view controller,
                                ControlGroups version) {
  const std::string wanted = version == ControlGroups::v2 ? "cgroup2" : "cgroup";
  std::ifstream stream(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, type, source, options;
    Mount mount;
    left >> id >> parent >> device >> mount.group >> mount.point;
    right >> type >> source >> options;
    if (type != wanted) continue;
    if (version == ControlGroups::v2 || lists(options, controller)) return mount;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> control_group_levels(const std::string& root, std::string_view controller,
                                              ControlGroups version) {
  const auto mount = find_mount(root, controller, version);
  if (!mount) return {};
  std::string path = group_path(root, controller, version);
  // In a container the mounted part may be this very group, seen under its name outside.
  if (mount->group != "/" && (path + "/").starts_with(mount->group + "/"))
    path.erase(0, mount->group.size());
  while (!path.empty() && path.back() == '/') path.pop_back();
  std::vector<std::string> levels{root + mount->point + path};
  while (path.find('/') != std::string::npos) {
    path.erase(path.rfind('/'));
    levels.push_back(root + mount->point + path);
  }
  return levels;
}

}  // namespace weft
