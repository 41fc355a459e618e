// What the inventory reads from files: the roots are arguments, so that tests can give their own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "transports/fabric.hpp"

namespace weft {

/// Interfaces below `root` (/sys/class/net) that are up, without loopback, sorted by name.
/// `driver_of` may be null: no interface's driver is known then.
std::vector<NetworkInterface> read_interfaces(const std::filesystem::path& root,
                                              std::string (*driver_of)(const std::string&));

/// CPU quota in cores: the least along the process's cgroup path (v2 cpu.max, v1 cpu.cfs_quota_us);
/// 0: none. `membership` is /proc/self/cgroup, `root` /sys/fs/cgroup.
double read_cpu_quota(const std::filesystem::path& membership, const std::filesystem::path& root);

}  // namespace weft
