#include "transports/verbs_device.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwloc.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>

#include "patterns/error.hpp"

namespace weft {
namespace {

struct DeviceList {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ~DeviceList() {
    if (devices != nullptr) ibv_free_device_list(devices);
  }
};

int numa_of(const std::string& device) {
  std::ifstream file("/sys/class/infiniband/" + device + "/device/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

/// "ACTIVE" of the library's "active" or "PORT_ACTIVE".
std::string state_text(ibv_port_state state) {
  std::string text = ibv_port_state_str(state);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text.starts_with("PORT_") ? text.substr(5) : text;
}

void add_ports(ibv_device* device, std::vector<VerbsPort>& ports, std::string& why) {
  const std::string name = ibv_get_device_name(device);
  const VerbsContext context(ibv_open_device(device));
  ibv_device_attr attributes{};
  if (!context || ibv_query_device(context.get(), &attributes) != 0) {
    why = fmt::format("{} cannot be opened ({}); may this user read and write /dev/infiniband?",
                      name, std::strerror(errno));
    return;
  }
  for (int port = 1; port <= attributes.phys_port_cnt; ++port) {
    ibv_port_attr facts{};
    if (ibv_query_port(context.get(), static_cast<std::uint8_t>(port), &facts) != 0) continue;
    ports.push_back(
        {name, port, facts.state == IBV_PORT_ACTIVE, state_text(facts.state), numa_of(name)});
  }
}

std::string ports_text(const std::vector<VerbsPort>& ports) {
  std::vector<std::string> texts;
  for (const VerbsPort& port : ports)
    texts.push_back(fmt::format("{} ({})", port.name(), port.state));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string_view type_text(GidFacts::Type type) {
  switch (type) {
    case GidFacts::Type::infiniband:
      return "IB";
    case GidFacts::Type::roce_v1:
      return "RoCE v1";
    case GidFacts::Type::roce_v2:
      break;
  }
  return "RoCE v2";
}

std::string gids_text(const std::vector<GidFacts>& gids) {
  std::vector<std::string> texts;
  for (const GidFacts& gid : gids) {
    texts.push_back(fmt::format("{} ({}{})", gid.index, type_text(gid.type),
                                gid.ipv4         ? ", IPv4"
                                : gid.link_local ? ", link-local"
                                                 : ""));
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

/// The smaller the better.
int rank_of(const GidFacts& gid) {
  if (gid.type == GidFacts::Type::infiniband) return 0;
  if (gid.type == GidFacts::Type::roce_v1) return 4;
  return gid.ipv4 ? 1 : gid.link_local ? 3 : 2;
}

std::vector<GidFacts> gid_table(ibv_context* context, int port, int length) {
  std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(std::max(length, 1)));
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  std::vector<GidFacts> gids;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    if (static_cast<int>(entry.port_num) != port) continue;
    const bool link_local = entry.gid.raw[0] == 0xfe && (entry.gid.raw[1] & 0xc0) == 0x80;
    gids.push_back({static_cast<int>(entry.gid_index),
                    entry.gid_type == IBV_GID_TYPE_IB        ? GidFacts::Type::infiniband
                    : entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidFacts::Type::roce_v1
                                                             : GidFacts::Type::roce_v2,
                    is_ipv4(entry.gid), link_local});
  }
  return gids;
}

ibv_device* find_device(const DeviceList& list, const std::string& name) {
  for (int i = 0; i < list.count; ++i) {
    if (name == ibv_get_device_name(list.devices[i])) return list.devices[i];
  }
  fail_usage(fmt::format("RDMA device {} is gone", name));
}

std::shared_ptr<VerbsDevice> open_port(const VerbsPort& port, int wanted_gid) {
  const DeviceList list;
  auto device = std::make_shared<VerbsDevice>();
  device->port = port;
  const auto number = static_cast<std::uint8_t>(port.port);
  device->context.reset(ibv_open_device(find_device(list, port.device)));
  if (!device->context) fail_verbs("ibv_open_device", port.name(), errno);
  ibv_context* context = device->context.get();
  CHECK_VERBS(ibv_query_device(context, &device->attributes), port.name());
  CHECK_VERBS(ibv_query_port(context, number, &device->port_attributes), port.name());
  device->roce = device->port_attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  device->gid_index = choose_gid(gid_table(context, port.port, device->port_attributes.gid_tbl_len),
                                 wanted_gid, port.name());
  CHECK_VERBS(ibv_query_gid(context, number, device->gid_index, &device->gid), port.name());
  device->domain.reset(ibv_alloc_pd(context));
  if (!device->domain) fail_verbs("ibv_alloc_pd", port.name(), errno);
  device->events = std::make_unique<VerbsEvents>(context, port.name());
  return device;
}

}  // namespace

std::shared_ptr<RegisteredMemory> VerbsDevice::memory(const MemoryRange& range) {
  std::erase_if(registered_, [](const auto& known) { return known.expired(); });
  for (const auto& known : registered_) {
    const auto memory = known.lock();
    if (memory && memory->range.data == range.data && memory->range.bytes >= range.bytes)
      return memory;
  }
  auto memory = std::make_shared<RegisteredMemory>(
      RegisteredMemory{range, register_memory(domain.get(), range, where())});
  registered_.push_back(memory);
  return memory;
}

std::vector<VerbsPort> list_ports(std::string& why) {
  std::vector<VerbsPort> ports;
  const DeviceList list;
  for (int i = 0; i < list.count; ++i) add_ports(list.devices[i], ports, why);
  std::ranges::sort(ports, {}, [](const VerbsPort& p) { return std::pair(p.device, p.port); });
  return ports;
}

VerbsPort choose_port(const std::vector<VerbsPort>& ports, const std::string& wanted, int numa,
                      int local_rank) {
  std::vector<VerbsPort> usable;
  for (const VerbsPort& port : ports) {
    if (!wanted.empty() && wanted != port.name() && wanted != port.device) continue;
    if (port.active) usable.push_back(port);
    if (!port.active && wanted == port.name()) {
      fail_usage(
          fmt::format("port {} is {}, not ACTIVE; bring the link up, or choose another port: "
                      "{}",
                      port.name(), port.state, ports_text(ports)));
    }
  }
  if (usable.empty() && ports.empty()) fail_usage("there is no RDMA device");
  if (usable.empty() && wanted.empty()) {
    fail_usage(fmt::format("no port of an RDMA device is ACTIVE: {}", ports_text(ports)));
  }
  if (usable.empty()) {
    fail_usage(fmt::format("there is no ACTIVE port of RDMA device '{}'; there are {}", wanted,
                           ports_text(ports)));
  }
  const auto near = [&](const VerbsPort& p) { return numa >= 0 && p.numa == numa; };
  const bool any_near = std::ranges::any_of(usable, near);
  if (any_near) std::erase_if(usable, [&](const VerbsPort& p) { return !near(p); });
  return usable[static_cast<std::size_t>(local_rank) % usable.size()];
}

int choose_gid(const std::vector<GidFacts>& gids, int wanted, const std::string& where) {
  if (wanted >= 0) {
    if (std::ranges::any_of(gids, [&](const GidFacts& g) { return g.index == wanted; })) {
      return wanted;
    }
    fail_usage(fmt::format("--gid-index {}: {} has no such GID; it has {}", wanted, where,
                           gids_text(gids)));
  }
  if (gids.empty()) {
    fail_usage(fmt::format("{} has no GID; give its network interface an address", where));
  }
  return std::ranges::min_element(gids, {},
                                  [](const GidFacts& g) { return std::pair(rank_of(g), g.index); })
      ->index;
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

std::string gid_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  is_ipv4(gid) ? inet_ntop(AF_INET, gid.raw + 12, text, sizeof text)
               : inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

int own_numa_node() {
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return -1;
  int node = -1;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) == 0) {
      hwloc_cpuset_to_nodeset(topology, cpus, nodes);
      if (hwloc_bitmap_weight(nodes) == 1) node = hwloc_bitmap_first(nodes);
    }
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
  }
  hwloc_topology_destroy(topology);
  return node;
}

std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions& options, int local_rank) {
  // Ranks that are threads of one process open theirs at the same time.
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int>, std::weak_ptr<VerbsDevice>> open;
  const std::lock_guard lock(mutex);
  std::string why;
  const std::vector<VerbsPort> ports = list_ports(why);
  if (ports.empty() && !why.empty()) fail_usage(why);
  const VerbsPort port = choose_port(ports, options.device, own_numa_node(), local_rank);
  std::weak_ptr<VerbsDevice>& known = open[{port.name(), options.gid_index}];
  if (auto device = known.lock()) return device;
  auto device = open_port(port, options.gid_index);
  known = device;
  return device;
}

}  // namespace weft
