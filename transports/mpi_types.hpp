// MPI data types and sums of weft's element types. MPI has no bf16 and no f16: those are two opaque
// bytes, with a sum of our own (f32 addition, rounded to nearest even at every step).
#pragma once

#include <mpi.h>

#include "patterns/types.hpp"

namespace weft {

class MpiTypes {
 public:
  MpiTypes();
  ~MpiTypes();
  MpiTypes(const MpiTypes&) = delete;
  MpiTypes& operator=(const MpiTypes&) = delete;

  MPI_Datatype data(DType type) const;
  /// For f32, bf16, f16.
  MPI_Op sum(DType type) const;

 private:
  MPI_Datatype bf16_ = MPI_DATATYPE_NULL, f16_ = MPI_DATATYPE_NULL;
  MPI_Op sum_bf16_ = MPI_OP_NULL, sum_f16_ = MPI_OP_NULL;
};

}  // namespace weft
