// Inventory of what the ranks run on: hosts, cores, NUMA, caches, memory, network interfaces and
// their rates.
#pragma once

#include <string>
#include <vector>

#include "transports/bootstrap.hpp"

namespace weft {

struct NetworkInterface {
  std::string name;
  double link_gbps = 0;     // Gbit/s; 0: unknown (sysfs says -1 or nothing)
  std::string rate_source;  // "sysfs", "sysfs (nominal: veth)", "--link-rate", or why it is unknown
  int numa = -1;            // -1: unknown
};

struct HostInventory {
  std::string host, cpu, kernel;
  int cores = 0;         // usable by this process (affinity mask)
  int numa_nodes = 0;    // 0: unknown
  double cpu_quota = 0;  // cores by cgroup quota; 0: none
  Bytes memory = 0;
  Bytes last_level_cache = 0;                // the largest one
  Bytes last_level_caches = 0;               // all of that level together
  std::vector<NetworkInterface> interfaces;  // up, without loopback
};

/// Reads this host (hwloc, sysfs). Unknown things stay unknown, nothing throws.
HostInventory read_inventory();
/// One inventory per host, gathered. Collective.
std::vector<HostInventory> gather_inventory(Bootstrap& bootstrap);

}  // namespace weft
