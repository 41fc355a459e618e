#include "bench/launch.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "transports/file_limit.hpp"
#include "transports/hydra.hpp"

namespace weft {
namespace {

// What MPICH with UCX was seen to open at its start: 20 files in one host, and between hosts up to
// one a rank.
constexpr int kFilesOfMpi = 24, kFilesOfMpiPerRank = 1;

int integer_variable(const char* name) {
  const char* text = std::getenv(name);
  int value = 0;
  if (!text) return 0;
  std::from_chars(text, text + std::strlen(text), value);
  return value;
}

// How long a launcher may take to read what was printed: it does at once unless it is stopped.
constexpr std::chrono::milliseconds kReading{2000};

// Pipes tell both ends what is still in them.
bool is_unread(int fd) {
  struct stat facts {};
  int bytes = 0;
  return fstat(fd, &facts) == 0 && S_ISFIFO(facts.st_mode) && ioctl(fd, FIONREAD, &bytes) == 0 &&
         bytes > 0;
}

}  // namespace

void say_last(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(nullptr);
  const auto deadline = std::chrono::steady_clock::now() + kReading;
  while (is_unread(STDERR_FILENO) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A process that leaves before it has said anything to hydra is one that ended well for it, and the
// others would wait in MPI_Init: hydra is told. Slurm's srun has an option for that
// (--kill-on-bad-exit).
void leave_alone(Rank rank, ExitCode code, const std::string& line) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300) * std::min(rank, 20));
  say_last(line);
  ask_hydra_to_end_all(static_cast<int>(code));
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

void check_open_files() {
  const Rank rank = launcher_rank();
  const std::string why = too_few_files(kFilesOfMpi + kFilesOfMpiPerRank * promised_ranks().ranks);
  if (why.empty()) return;
  std::array<char, HOST_NAME_MAX + 1> host{};
  gethostname(host.data(), HOST_NAME_MAX);
  leave_alone(rank, ExitCode::usage,
              fmt::format("weft: error: rank {} on {}: {}", rank, host.data(), why));
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
