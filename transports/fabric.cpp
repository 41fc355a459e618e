#include "transports/fabric.hpp"

#include <hwloc.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "transports/fabric_sysfs.hpp"

namespace weft {
namespace {

/// A host as one of its ranks sees it: ranks may be bound to different cores.
struct LocalView {
  HostInventory host;
  std::set<int> cores;  // logical indices of the usable ones
};

struct TopologyDestroyer {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, TopologyDestroyer>;

Topology load_topology() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Topology owned(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(owned) : nullptr;
}

std::set<int> usable_cores(hwloc_topology_t topology) {
  const std::unique_ptr<hwloc_bitmap_s, void (*)(hwloc_bitmap_t)> bound(hwloc_bitmap_alloc(),
                                                                        hwloc_bitmap_free);
  std::set<int> cores;
  if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_PROCESS) != 0) return cores;
  const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t core =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
    if (hwloc_bitmap_intersects(core->cpuset, bound.get()) != 0) cores.insert(i);
  }
  return cores;
}

Bytes largest_cache(hwloc_topology_t topology) {
  Bytes largest = 0;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    for (hwloc_obj_t c = nullptr; (c = hwloc_get_next_obj_by_type(topology, type, c)) != nullptr;) {
      largest = std::max(largest, static_cast<Bytes>(c->attr->cache.size));
    }
  }
  return largest;
}

/// Sockets and core complexes have one each.
Bytes all_caches(hwloc_topology_t topology) {
  Bytes sum = 0;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    for (unsigned i = 0;; ++i) {
      const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, i);
      if (cache == nullptr) break;
      sum += static_cast<Bytes>(cache->attr->cache.size);
    }
    if (sum > 0) break;
  }
  return sum;
}

std::string cpu_model(hwloc_topology_t topology) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_PACKAGE, HWLOC_OBJ_MACHINE}) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, 0);
    const char* model =
        object != nullptr ? hwloc_obj_get_info_by_name(object, "CPUModel") : nullptr;
    if (model != nullptr) return model;
  }
  return {};
}

/// The driver's name by ethtool; empty: unknown.
std::string driver_of(const std::string& interface) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&info);
  const bool known = ioctl(fd, SIOCETHTOOL, &request) == 0;
  close(fd);
  return known ? std::string(info.driver, strnlen(info.driver, sizeof info.driver)) : std::string();
}

void read_topology(LocalView& view) {
  const Topology topology = load_topology();
  if (!topology) return;
  HostInventory& host = view.host;
  view.cores = usable_cores(topology.get());
  host.cores = static_cast<int>(view.cores.size());
  // hwloc invents a node where the system shows none.
  if (access("/sys/devices/system/node/node0", F_OK) == 0)
    host.numa_nodes = std::max(0, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE));
  host.memory = static_cast<Bytes>(hwloc_get_root_obj(topology.get())->total_memory);
  host.last_level_cache = largest_cache(topology.get());
  host.last_level_caches = all_caches(topology.get());
  host.cpu = cpu_model(topology.get());
}

LocalView read_local() {
  LocalView view;
  utsname names{};
  if (uname(&names) == 0) {
    view.host.host = names.nodename;
    view.host.kernel = std::string(names.sysname) + " " + names.release;
  }
  read_topology(view);
  view.host.cpu_quota = read_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");
  view.host.interfaces = read_interfaces("/sys/class/net", driver_of);
  return view;
}

using nlohmann::json;

json to_json(const LocalView& view) {
  const HostInventory& h = view.host;
  json interfaces = json::array();
  for (const NetworkInterface& i : h.interfaces)
    interfaces.push_back({i.name, i.link_gbps, i.rate_source, i.numa});
  return {{"host", h.host},
          {"cpu", h.cpu},
          {"kernel", h.kernel},
          {"numa", h.numa_nodes},
          {"quota", h.cpu_quota},
          {"memory", h.memory},
          {"cache", h.last_level_cache},
          {"caches", h.last_level_caches},
          {"cores", view.cores},
          {"interfaces", interfaces}};
}

LocalView from_json(const json& j) {
  LocalView view;
  HostInventory& h = view.host;
  h.host = j.at("host");
  h.cpu = j.at("cpu");
  h.kernel = j.at("kernel");
  h.numa_nodes = j.at("numa");
  h.cpu_quota = j.at("quota");
  h.memory = j.at("memory");
  h.last_level_cache = j.at("cache");
  h.last_level_caches = j.at("caches");
  view.cores = j.at("cores").get<std::set<int>>();
  for (const json& i : j.at("interfaces"))
    h.interfaces.push_back({i.at(0), i.at(1), i.at(2), i.at(3)});
  return view;
}

}  // namespace

HostInventory read_inventory() { return read_local().host; }

std::vector<HostInventory> gather_inventory(Bootstrap& bootstrap) {
  // Names may hold bytes that are no UTF-8; they are replaced, for nothing here may throw.
  const std::string mine =
      to_json(read_local()).dump(-1, ' ', false, json::error_handler_t::replace);
  const auto texts = bootstrap.all_gather(mine);
  const auto indices = bootstrap.host_indices();
  std::vector<LocalView> views;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    LocalView view = from_json(json::parse(texts[r]));
    if (static_cast<std::size_t>(indices[r]) == views.size()) {
      view.host.host = bootstrap.hosts()[r];
      views.push_back(std::move(view));
    } else {
      views[static_cast<std::size_t>(indices[r])].cores.merge(view.cores);
    }
  }
  std::vector<HostInventory> hosts;
  for (LocalView& view : views) {
    view.host.cores = static_cast<int>(view.cores.size());
    hosts.push_back(std::move(view.host));
  }
  return hosts;
}

}  // namespace weft
