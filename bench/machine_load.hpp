// What else the cores did while a cell was measured: the raw numbers behind the noise columns.
//
//   LoadMeter meter(bootstrap);                        // once a run, collective
//   meter.start(); ...the cell...; const MachineLoad mine = meter.stop();
//   const LoadShares worst = load_shares(bootstrap, mine);
//
// Wrong: to start and stop around each iteration or block and add up. The system counts idle time
// in ticks of 10 ms, and each interval adds an error of that size; one interval a cell.
#pragma once

#include <string>
#include <vector>

#include "kernels/control_group.hpp"
#include "transports/bootstrap.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

/// One rank's raw numbers over an interval. NaN: unknown, or another rank of the host has it.
struct MachineLoad {
  double wall_us = 0;
  double busy_us = 0;   // CPU time of everything on the host's usable CPUs; its first rank's only
  double steal_us = 0;  // of the same CPUs, taken by the hypervisor; its first rank's only
  double own_us = 0;    // CPU time of this process, all threads
  double throttled_us = 0;   // how long the CPU quota held the process's control group back
  double resolution_us = 0;  // error bound of busy_us and steal_us: one tick per CPU
  int cpus = 0;              // usable by the ranks of this host together

  /// Adds an interval: of another attempt at the same cell, say.
  MachineLoad& operator+=(const MachineLoad& other);
};

/// Of the ranks of one host, or of the worst host. NaN: unknown, or the interval was so short that
/// one tick is more than a tenth of it.
struct LoadShares {
  double other_load = 0;  // CPU time that went to others than these ranks, share of usable CPU time
  double steal = 0;       // share of usable CPU time
  double throttled_us = 0;
};
/// `ranks`: all ranks of one host.
LoadShares load_shares(const std::vector<MachineLoad>& ranks);
/// Collective: the worst of all hosts, each column for itself; the same on every rank.
LoadShares load_shares(Bootstrap& bootstrap, const MachineLoad& mine);

/// Measures intervals. start() and stop() read one or two small files each (about 20 us).
class LoadMeter {
 public:
  /// Collective: which CPUs the ranks of this host may use together.
  explicit LoadMeter(Bootstrap& bootstrap);
  /// Of these CPUs; `root` is "" but in tests.
  LoadMeter(std::vector<int> cpus, bool reads_cpus, const std::string& root = "");

  void start();
  MachineLoad stop() const;

 private:
  struct Reading {
    double at_us = 0, own_us = 0, idle_us = 0, steal_us = 0, throttled_us = 0;
  };
  Reading read() const;
  void read_cpus(Reading& reading) const;

  std::vector<int> cpus_;
  Descriptor stat_;                      // none: another rank of the host reads it
  std::vector<Descriptor> group_stats_;  // of each level that has a quota or may get one
  Reading first_;
};

/// CPUs and CPU time that the ranks of one host may use, for the provenance.
struct CpuLimits {
  std::string usable_cpus;  // "0-3 8": union of their affinity masks, which a cpuset narrows
  std::string quota;        // "1 CPU (100000 of each 100000 us, /sys/fs/cgroup/cpu/x)", "none",
                            // "unknown"
};
/// One a host, in order of first appearance. Collective.
std::vector<CpuLimits> gather_cpu_limits(Bootstrap& bootstrap);
/// The tightest quota on the way up from this process's control group, in words.
std::string cpu_quota_text(const std::string& root = "");

}  // namespace weft
