#include "transports/mpi_types.hpp"

#include "kernels/backend.hpp"
#include "transports/mpi_check.hpp"

namespace weft {
namespace {

template <DType type>
void add(void* in, void* in_out, MPI_Count* length, MPI_Datatype*) {
  auto* sum = static_cast<std::byte*>(in_out);
  const std::byte* sources[] = {sum, static_cast<const std::byte*>(in)};
  reduce_sum(sum, sources, 2, static_cast<Index>(*length), type);
}

void make_type(MPI_Datatype& type) {
  CHECK_MPI(MPI_Type_contiguous(2, MPI_BYTE, &type));
  CHECK_MPI(MPI_Type_commit(&type));
}

constexpr int kCommutes = 1;

}  // namespace

MpiTypes::MpiTypes() {
  make_type(bf16_);
  make_type(f16_);
  CHECK_MPI(MPI_Op_create_c(add<DType::bf16>, kCommutes, &sum_bf16_));
  CHECK_MPI(MPI_Op_create_c(add<DType::f16>, kCommutes, &sum_f16_));
}

MpiTypes::~MpiTypes() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  MPI_Op_free(&sum_bf16_);
  MPI_Op_free(&sum_f16_);
  MPI_Type_free(&bf16_);
  MPI_Type_free(&f16_);
}

MPI_Datatype MpiTypes::data(DType type) const {
  switch (type) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
      return bf16_;
    case DType::f16:
      return f16_;
    case DType::i32:
      return MPI_INT32_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op MpiTypes::sum(DType type) const {
  switch (type) {
    case DType::bf16:
      return sum_bf16_;
    case DType::f16:
      return sum_f16_;
    default:
      return MPI_SUM;
  }
}

}  // namespace weft
