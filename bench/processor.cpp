// Linked into each program, and run before anything else of it: a processor without the vectors
// that the program was built for would end it with SIGILL in the middle of static initialisation.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "transports/hydra.hpp"

namespace weft {
namespace {

constexpr int kUsage = 2;                                // ExitCode::usage
constexpr unsigned kTurn = 300'000, kReading = 200'000;  // us, as in launch.cpp

/// What the compiler was allowed to use and this processor lacks; null if nothing.
[[gnu::target("arch=x86-64")]] const char* missing_vectors() {
  __builtin_cpu_init();
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return "FMA";
#endif
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __AVX512VBMI2__  // Ice Lake, Zen 4
  if (!__builtin_cpu_supports("avx512vbmi2")) return "AVX-512 VBMI2";
#endif
  return nullptr;
}

/// Nothing of the C++ library here: it may have been compiled for those vectors too.
[[gnu::constructor(101), gnu::target("arch=x86-64")]] void check_processor() {
  const char* missing = missing_vectors();
  if (missing == nullptr) return;
  const char* rank = std::getenv("PMI_RANK");
  if (rank == nullptr) rank = std::getenv("SLURM_PROCID");
  const int turn = rank == nullptr ? 0 : std::atoi(rank);
  usleep(kTurn * static_cast<unsigned>(turn < 20 ? turn : 20));
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  dprintf(
      STDERR_FILENO,
      "weft: error: rank %d on %s: this program was built for processors with %s, which this one "
      "lacks: build it on the oldest machine that is to run it, or configure with "
      "-DWEFT_ARCH=x86-64-v3, or x86-64-v2\n",
      turn, host, missing);
  usleep(kReading);
  ask_hydra_to_end_all(kUsage);
  _exit(kUsage);
}

}  // namespace
}  // namespace weft
