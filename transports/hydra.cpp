#include "transports/hydra.hpp"

#include <cstdio>
#include <cstdlib>

namespace weft {

bool ask_hydra_to_end_all(int code) {
  const char* line = std::getenv("PMI_FD");
  if (line == nullptr || std::getenv("MPI_LOCALNRANKS") == nullptr) return false;
  const int fd = std::atoi(line);
  return fd > 0 && dprintf(fd, "cmd=abort exitcode=%d\n", code) > 0;
}

}  // namespace weft
