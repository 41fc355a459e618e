// Port counters of all hosts of a run: one rank of each host reads that host's.
//
//   PortMeter meter(bootstrap);
//   meter.start(); ...a block...; add_interval(sum, meter.lap()); ...   // no communication
//   const std::vector<HostPorts> hosts = gather_ports(bootstrap, sum);  // once a cell, collective
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transports/bootstrap.hpp"
#include "transports/port_counters.hpp"
#include "transports/queue_pair_facts.hpp"

namespace weft {

class PortMeter {
 public:
  /// Opens the counters on the first rank of each real host.
  explicit PortMeter(const Bootstrap& bootstrap, const PortRoots& roots = {});
  void start();
  /// Since start() or the last lap(); empty on ranks that do not read.
  std::vector<PortCounts> lap();

 private:
  std::optional<PortCounters> counters_;
};

/// What ranks gave to their queue pairs: work requests, their bytes and packets, without
/// acknowledgements and repetitions. All 0 where a transport has no queue pairs.
struct WorkPosted {
  std::int64_t messages = 0, packets = 0;
  Bytes bytes = 0;
  WorkPosted& operator+=(const WorkPosted& other);
  WorkPosted operator-(const WorkPosted& other) const;
  bool operator==(const WorkPosted&) const = default;
};
WorkPosted work_of(const std::vector<QueuePairFacts>& pairs);
/// Collective: that of all ranks.
WorkPosted gather_work(Bootstrap& bootstrap, const WorkPosted& mine);

/// What one host counted.
struct HostPorts {
  std::string host;  // real name
  std::vector<PortCounts> ports;
};
/// Collective: those of all hosts, in order of their first ranks; the same on every rank.
std::vector<HostPorts> gather_ports(Bootstrap& bootstrap, const std::vector<PortCounts>& mine);

}  // namespace weft
