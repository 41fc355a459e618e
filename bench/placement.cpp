#include "bench/placement.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr Bytes kAlignment = 256;  // a pair of cache lines, and every vector width
constexpr Bytes kMostSets = 1024;
constexpr Bytes kMostSteps = 20000;
constexpr Bytes kAssumedCache = Bytes{32} << 20;  // where the system does not tell

Bytes slot_bytes(const Tensor& tensor) {
  const Bytes bytes = std::max<Bytes>(tensor.elements() * size_of(tensor.dtype), 1);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

TensorPlacement::TensorPlacement(const Program& program, Arena& arena) {
  for (const Tensor& tensor : program.tensors) {
    std::vector<std::byte*>& slots = addresses_.emplace_back();
    for (int slot = 0; slot < tensor.slots; ++slot) {
      slots.push_back(arena.take(slot_bytes(tensor), kAlignment).data());
    }
  }
}

Bytes TensorPlacement::bytes(const Program& program) {
  Bytes sum = 0;
  for (const Tensor& tensor : program.tensors) sum += slot_bytes(tensor) * tensor.slots;
  return sum;
}

int rotation_sets(Bytes host_bytes, Bytes last_level_cache, std::size_t steps, bool hot) {
  if (hot || host_bytes <= 0) return 1;
  const Bytes cache = last_level_cache > 0 ? last_level_cache : kAssumedCache;
  const Bytes wanted = (2 * cache + host_bytes - 1) / host_bytes;
  const Bytes most =
      std::max<Bytes>(1, kMostSteps / static_cast<Bytes>(std::max<std::size_t>(steps, 1)));
  return static_cast<int>(std::clamp<Bytes>(wanted, 1, std::min(kMostSets, most)));
}

}  // namespace weft
