// Where numbers come from: command line, version, hosts, processor, memory, interfaces, libraries,
// environment, time.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "bench/machine_load.hpp"
#include "transports/fabric.hpp"

namespace weft {

struct RunFacts {
  std::vector<std::string> command_line;
  std::string launch_id;
  std::string mpi_library;  // MPI_Get_library_version(), from the transports room
  std::string kernels;      // KernelBackend::description()
  std::vector<HostInventory> inventory;
  std::vector<CpuLimits> cpu_limits;  // of the same hosts
  std::vector<std::string> hosts;     // of each rank
  double timer_cost_ns = 0;
  double copy_limit_GBps = 0;
  int threads_per_rank = 1;
};

/// A JSON object in one line. Times in UTC.
std::string provenance_json(const RunFacts& facts);

/// 16 hex digits that no other launch has: time, pid, host, random.
std::string make_launch_id();

/// "2026-11-29T22:13:22Z"
std::string utc_now();
std::string utc_text(std::time_t when);

}  // namespace weft
