#include "transports/fabric_sysfs.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int kLoopback = 772;                         // ARPHRD_LOOPBACK
constexpr std::int64_t kUnsignedUnknown = 0xFFFFFFFF;  // -1, as older kernels print it

struct Text {
  std::string line;   // first line
  std::string error;  // why there is none
};

/// The first line of a file. Some attributes open but fail to be read (a link without a rate:
/// EINVAL).
Text read_text(const fs::path& path) {
  Text text;
  errno = 0;
  std::ifstream file(path);
  if (!file || !std::getline(file, text.line))
    text.error = errno != 0 ? std::strerror(errno) : "empty";
  return text;
}

template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) return std::nullopt;
  return value;
}

std::optional<int> read_int(const fs::path& path) { return parse<int>(read_text(path).line); }

bool is_up(const fs::path& interface) {
  const std::string state = read_text(interface / "operstate").line;
  // Drivers without link detection say "unknown" while they work.
  return state == "up" || (state == "unknown" && read_int(interface / "carrier").value_or(0) == 1);
}

void read_rate(const fs::path& interface, const std::string& driver, NetworkInterface& found) {
  const Text speed = read_text(interface / "speed");
  const auto megabits = parse<std::int64_t>(speed.line);
  if (!speed.error.empty()) {
    found.rate_source = "unknown (sysfs speed: " + speed.error + ")";
  } else if (!megabits || *megabits <= 0 || *megabits >= kUnsignedUnknown) {
    found.rate_source = "unknown (sysfs speed says " + speed.line + ")";
  } else {
    found.link_gbps = static_cast<double>(*megabits) / 1000.0;
    // A veth pair reports 10 Gbit/s whatever it carries.
    found.rate_source = driver == "veth" ? "sysfs (nominal: veth)" : "sysfs";
  }
}

/// Quota of one cgroup directory, v2 or v1; 0: none.
double quota_of(const fs::path& directory) {
  std::string quota, period;
  if (std::ifstream v2(directory / "cpu.max"); v2) {
    v2 >> quota >> period;
  } else {
    quota = read_text(directory / "cpu.cfs_quota_us").line;
    period = read_text(directory / "cpu.cfs_period_us").line;
  }
  const auto q = parse<std::int64_t>(quota), p = parse<std::int64_t>(period);
  return q && p && *q > 0 && *p > 0 ? static_cast<double>(*q) / static_cast<double>(*p) : 0.0;
}

/// Directory of the process's cpu controller: "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1).
std::optional<fs::path> cgroup_directory(const std::string& line, const fs::path& root) {
  const auto first = line.find(':'), second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return std::nullopt;
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const fs::path path = fs::path(line.substr(second + 1)).relative_path();
  if (controllers.empty()) return root / path;
  if (("," + controllers + ",").find(",cpu,") == std::string::npos) return std::nullopt;
  return root / "cpu" / path;
}

}  // namespace

std::vector<NetworkInterface> read_interfaces(const fs::path& root,
                                              std::string (*driver_of)(const std::string&)) {
  std::vector<NetworkInterface> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    const fs::path path = entry.path();
    if (read_int(path / "type").value_or(0) == kLoopback || !is_up(path)) continue;
    NetworkInterface found{
        .name = path.filename().string(), .link_gbps = 0, .rate_source = {}, .numa = -1};
    found.numa = std::max(-1, read_int(path / "device" / "numa_node").value_or(-1));
    read_rate(path, driver_of != nullptr ? driver_of(found.name) : std::string(), found);
    all.push_back(std::move(found));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

double read_cpu_quota(const fs::path& membership, const fs::path& root) {
  double least = 0;
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const auto directory = cgroup_directory(line, root);
    if (!directory) continue;
    // In a container the path may lie outside of what is mounted: its existing ancestors are read.
    for (fs::path at = *directory;; at = at.parent_path()) {
      const double quota = quota_of(at);
      if (quota > 0 && (least == 0 || quota < least)) least = quota;
      if (at == root || !at.has_relative_path()) break;
    }
  }
  return least;
}

}  // namespace weft
