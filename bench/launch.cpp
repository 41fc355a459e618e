#include "bench/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace weft {
namespace {

int integer_variable(const char* name) {
  const char* text = std::getenv(name);
  int value = 0;
  if (!text) return 0;
  std::from_chars(text, text + std::strlen(text), value);
  return value;
}

}  // namespace

void leave_alone(Rank rank, ExitCode code, const std::string& message) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300) * std::min(rank, 20));
  std::fprintf(stderr, "weft: error: %s\n", message.c_str());
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

// Hydra's and PMI's own count comes first: mpiexec -n 2 inside an allocation of four tasks promised
// two.
Promise promised_ranks() {
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    if (const int ranks = integer_variable(name)) return {ranks, name};
  }
  if (std::getenv("SLURM_PROCID")) {
    for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
      if (const int ranks = integer_variable(name)) return {ranks, name};
    }
  }
  return {};
}

Rank launcher_rank() {
  for (const char* name :
       {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name)) return integer_variable(name);
  }
  return 0;
}

void check_launch(int found, int needed) {
  const Promise promise = promised_ranks();
  if (promise.ranks > found) {
    fail_usage(fmt::format(
        "the launcher promised {} ranks ({}={}) but MPI found {}: the launcher and this MPI "
        "library do not speak the same "
        "PMI; start it with 'srun --mpi=pmi2 -n {}' or with this MPICH's own 'mpiexec -n {}'",
        promise.ranks, promise.variable, promise.ranks, found, promise.ranks, promise.ranks));
  }
  if (needed > found) {
    fail_usage(
        fmt::format("the layout needs {} ranks but MPI found {}: start it with 'mpiexec -n {} ...' "
                    "(or 'srun --mpi=pmi2 -n {} ...'), or ask for a smaller layout",
                    needed, found, needed, needed));
  }
}

}  // namespace weft
