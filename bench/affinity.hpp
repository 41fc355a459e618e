// Which processors the ranks of a host may use, and whether they must share them.
#pragma once

#include <string>

#include "transports/bootstrap.hpp"

namespace weft {

struct CpuShare {
  int cores = 1;  // usable by the ranks of this host together
  int threads_per_rank =
      1;  // this rank's mask, divided by the ranks whose masks meet it; at least 1
  bool oversubscribed = false;  // somewhere more ranks than cores
  std::string binding;          // "0-1": this rank's mask as a list
};

/// Collective; all ranks get the same answer but for `binding` and masks of their own.
CpuShare share_cpus(Bootstrap& bootstrap);

}  // namespace weft
