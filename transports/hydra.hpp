// MPICH's launcher, told on the line that it gave each rank.
#pragma once

namespace weft {

/// Asks hydra to end all ranks with this exit code: PMI-1's abort, which needs no MPI, so that it
/// works before MPI_Init and from any thread. False where hydra did not start this process.
bool ask_hydra_to_end_all(int code);

}  // namespace weft
