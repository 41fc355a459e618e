// Which processors the ranks of a host may use, and whether they must share them.
#pragma once

#include <string>
#include <vector>

#include "transports/bootstrap.hpp"

namespace weft {

struct CpuShare {
  int cores = 1;  // usable by the ranks of this host together
  int threads_per_rank =
      1;  // this rank's mask, divided by the ranks whose masks meet it; at least 1
  bool oversubscribed = false;  // somewhere more ranks than cores
  std::string binding;          // "0-1": this rank's mask as a list
  double cores_per_rank = 1;    // this rank's mask divided by the ranks whose masks meet it
  /// How the binding does not fit, of the lowest rank that has something to say: more ranks bound
  /// to processors than there are of them while others of the host stay idle; processors of one
  /// rank on several NUMA nodes; several ranks on several processors, free to move. Empty: it fits.
  std::string note;
};

/// Collective; all ranks get the same answer but for `binding` and masks of their own.
CpuShare share_cpus(Bootstrap& bootstrap);

/// CPUs that the ranks of this rank's host may use together, ascending. Collective.
std::vector<int> host_cpus(Bootstrap& bootstrap);
/// "0-3 8"
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace weft
