// Which RDMA device, port and GID a rank uses, and the opened device. Choosing is a matter of plain
// facts, so that it can be tested without a device. Private to verbs*.cpp and their tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/verbs_events.hpp"
#include "transports/verbs_objects.hpp"
#include "transports/verbs_options.hpp"

namespace weft {

/// A port as the choice sees it.
struct VerbsPort {
  std::string device;
  int port = 1;
  bool active = false;
  std::string state;  // "ACTIVE", "DOWN", ...: for errors
  int numa = -1;      // of the device; -1: unknown
  std::string name() const { return device + ":" + std::to_string(port); }
};

/// Ports of all devices, sorted by name. Devices that cannot be opened are left out, with the
/// reason in `why`.
std::vector<VerbsPort> list_ports(std::string& why);

/// The port `wanted` ("mlx5_0", "mlx5_0:2"), or without a wish one of the active ports nearest to
/// `numa` (-1: unknown), a different one for each rank of a host. Throws Error(usage) that lists
/// what there is.
VerbsPort choose_port(const std::vector<VerbsPort>& ports, const std::string& wanted, int numa,
                      int local_rank);

/// An entry of a port's GID table.
struct GidFacts {
  enum class Type : std::uint8_t { infiniband, roce_v1, roce_v2 };
  int index = 0;
  Type type = Type::roce_v2;
  bool ipv4 = false;        // an IPv4-mapped address
  bool link_local = false;  // fe80::
};
/// RoCE v2 over IPv4 first, then RoCE v2 over global IPv6, over link-local, RoCE v1; InfiniBand's
/// only kind is 0. `wanted` >= 0 must be there. Throws Error(usage) listing what there is.
int choose_gid(const std::vector<GidFacts>& gids, int wanted, const std::string& where);

/// "10.0.2.10" of an IPv4-mapped GID, else "fe80::...".
std::string gid_text(const ibv_gid& gid);
bool is_ipv4(const ibv_gid& gid);

/// Memory that is registered while somebody needs it.
struct RegisteredMemory {
  MemoryRange range;
  VerbsMemory keys;
};

/// An open device with one protection domain, shared by all sessions of this process.
struct VerbsDevice {
  /// The registration of a range, one for all who ask while it lives: a longer one from the same
  /// address on serves too. Throws Error(usage).
  std::shared_ptr<RegisteredMemory> memory(const MemoryRange& range);

  VerbsContext context;
  VerbsDomain domain;
  ibv_device_attr attributes{};
  ibv_port_attr port_attributes{};
  VerbsPort port;
  int gid_index = 0;
  ibv_gid gid{};
  bool roce = true;
  std::unique_ptr<VerbsEvents> events;
  std::string where() const { return port.name(); }

 private:
  std::vector<std::weak_ptr<RegisteredMemory>> registered_;
};
/// The device that this rank uses. Throws Error(usage).
std::shared_ptr<VerbsDevice> open_verbs_device(const VerbsOptions& options, int local_rank);

/// NUMA node of the processors this thread may run on; -1 if they are on several or unknown.
int own_numa_node();

}  // namespace weft
