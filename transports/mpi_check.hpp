// CHECK_MPI(call): throws Error(usage) with the call, MPI's own words, and the rank. Communicators
// must return errors (MPI_ERRORS_RETURN).
#pragma once

#include <mpi.h>

namespace weft {

[[noreturn]] void fail_mpi(int code, const char* call);

}  // namespace weft

#define CHECK_MPI(call)                                                       \
  do {                                                                        \
    const int weft_mpi_code = (call);                                         \
    if (weft_mpi_code != MPI_SUCCESS) ::weft::fail_mpi(weft_mpi_code, #call); \
  } while (false)
