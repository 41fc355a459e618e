// Test double of an MPI library, to be preloaded: rank 1 never comes back from MPI_Finalize.
#include <mpi.h>
#include <unistd.h>

extern "C" int MPI_Finalize() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  while (rank == 1) pause();
  return PMPI_Finalize();
}
