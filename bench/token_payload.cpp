#include "bench/token_payload.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr Bytes kAlignment = 64;

BoundView token(Index elements, DType dtype, Arena& arena) {
  const auto block = arena.take(elements * size_of(dtype), kAlignment);
  std::fill(block.begin(), block.end(), std::byte{0});  // sums of zeros stay zeros
  return {block.data(), dtype, 1, elements, elements};
}

}  // namespace

Operation with_token_payload(const Operation& operation, int size, int rank, Arena& arena) {
  const std::vector<Index> each(static_cast<std::size_t>(size), 1);
  const auto elements = [&](Index n) { return token(n, operation.dtype, arena); };
  Operation op = operation;
  op.run_time.reset();
  switch (operation.kind) {
    case OperationKind::all_gather:
      op.counts = each;
      op.in = elements(1);
      op.out = elements(size);
      break;
    case OperationKind::reduce_scatter:
      op.counts = each;
      op.in = elements(size);
      op.out = elements(1);
      break;
    case OperationKind::all_to_all_v:
      op.counts = op.recv_counts = each;
      op.in = elements(size);
      op.out = elements(size);
      break;
    case OperationKind::all_reduce:
    case OperationKind::broadcast:
      op.out = elements(1);
      op.in = operation.kind == OperationKind::all_reduce || rank == operation.root ? elements(1)
                                                                                    : BoundView{};
      break;
    case OperationKind::point_to_point:
      for (PointToPoint& member : op.members) member.data = elements(1);
      break;
  }
  return op;
}

}  // namespace weft
