// How a rank waits for MPI where MPI's own blocking calls would not do: they spin, and with more
// ranks than cores that costs a time slice each.
#pragma once

#include <sched.h>

#include <span>

#include "transports/mpi_check.hpp"

namespace weft {

/// Until all are complete; gives the core away meanwhile.
inline void wait_politely(std::span<MPI_Request> requests) {
  const auto test = [&] {
    int done = 0;
    CHECK_MPI(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    return done != 0;
  };
  while (!test()) sched_yield();
}
inline void wait_politely(MPI_Request& request) { wait_politely({&request, 1}); }

}  // namespace weft
