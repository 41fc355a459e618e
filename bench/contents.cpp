#include "bench/contents.hpp"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr Bytes kWhole = Bytes{4} << 20;   // smaller tensors are read whole
constexpr Bytes kBlock = Bytes{16} << 10;  // of larger ones, blocks of this size
constexpr Bytes kBlocks = 256;

// Every step is a bijection of the state, so one changed word cannot be undone by what follows.
void mix(std::uint64_t& state, std::uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15U;
  state ^= state >> 32;
}

void digest_block(std::uint64_t& state, const std::byte* data, Bytes bytes) {
  Bytes at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, 8);
    mix(state, word);
  }
  for (; at < bytes; ++at) mix(state, static_cast<std::uint64_t>(data[at]));
}

void digest_tensor(std::uint64_t& state, const std::byte* data, Bytes bytes) {
  if (bytes <= kWhole) return digest_block(state, data, bytes);
  for (Bytes block = 0; block < kBlocks; ++block) {
    digest_block(state, data + (bytes - kBlock) * block / (kBlocks - 1), kBlock);
  }
}

}  // namespace

std::uint64_t contents_digest(const Program& program, const TensorPlacement& placement) {
  std::uint64_t state = 1;
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const Tensor& tensor = program.tensors[id];
    for (int slot = 0; slot < tensor.slots; ++slot) {
      digest_tensor(state, placement.address(static_cast<TensorId>(id), slot),
                    tensor.elements() * size_of(tensor.dtype));
    }
  }
  return state;
}

}  // namespace weft
