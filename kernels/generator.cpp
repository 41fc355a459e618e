#include "kernels/generator.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/convert.hpp"

namespace weft {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection in which each input bit moves
/// half of the output.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// FNV-1a, 64 bits: the same on every machine, which std::hash does not promise.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  return hash;
}

/// Values of a slot of a tensor as a function of the global position.
class Source {
 public:
  Source(const Tensor& tensor, std::uint64_t seed, int slot)
      : tensor_(tensor),
        slot_(slot),
        width_(tensor.global_cols > 0 ? tensor.global_cols : tensor.cols),
        key_(mix(mix(seed + kGolden) ^ hash_of(tensor.name)) +
             kGolden * static_cast<std::uint64_t>(slot)) {
    key_ = mix(key_);
  }

  /// Rounded to f32, so that storing it in any type rounds once more only, whoever does it.
  double at(Index row, Index col) const {
    switch (tensor_.fill) {
      case Fill::none:
      case Fill::zero:
        return 0.0;
      case Fill::uniform:
        return uniform(row, col);
      case Fill::positive:
        return positive(row, col);
      case Fill::constant:
        return static_cast<float>(tensor_.scale);
      case Fill::values:
        return listed(row, col);
      case Fill::zipf_bias:
        return static_cast<float>(-tensor_.scale * std::log1p(static_cast<double>(col)));
    }
    return 0.0;
  }

  // n values of a row; the two random kinds in loops of their own, which vectorise.
  void fill(float* out, Index row, Index col, Index n) const {
    if (tensor_.fill == Fill::uniform) {
      for (Index i = 0; i < n; ++i) out[i] = uniform(row, col + i);
    } else if (tensor_.fill == Fill::positive) {
      for (Index i = 0; i < n; ++i) out[i] = positive(row, col + i);
    } else {
      for (Index i = 0; i < n; ++i) out[i] = static_cast<float>(at(row, col + i));
    }
  }

 private:
  /// 24 random bits: as many as an f32 between 0 and 1 can hold evenly.
  std::int32_t bits(Index row, Index col) const {
    const auto element = static_cast<std::uint64_t>(row * width_ + col);
    return static_cast<std::int32_t>(mix(key_ + kGolden * element) >> 40);
  }

  float uniform(Index row, Index col) const {
    // Odd numbers from -(2^24 - 1) to 2^24 - 1: symmetric about 0, and never 0, which would hide a
    // lost factor.
    const double centred = 2.0 * bits(row, col) - (0x1p24 - 1.0);
    return static_cast<float>(tensor_.scale * (centred * (1.0 / (0x1p24 - 1.0))));
  }

  float positive(Index row, Index col) const {
    return static_cast<float>(tensor_.scale * (bits(row, col) * (1.0 / (0x1p24 - 1.0))));
  }

  double listed(Index row, Index col) const {
    const Index local = (slot_ - tensor_.slot_offset) * tensor_.elements() +
                        (row - tensor_.row_offset) * tensor_.cols + (col - tensor_.col_offset);
    return tensor_.values.at(static_cast<std::size_t>(local));
  }

  const Tensor& tensor_;
  int slot_;
  Index width_;
  std::uint64_t key_;
};

void fill_integers(const Tensor& tensor, const Source& source, std::byte* data) {
  for (Index row = 0; row < tensor.rows; ++row) {
    for (Index col = 0; col < tensor.cols; ++col) {
      store_element(data, tensor.dtype, row * tensor.cols + col,
                    source.at(tensor.row_offset + row, tensor.col_offset + col));
    }
  }
}

/// Integers up to this magnitude are exact: 2 to the number of significant bits; i32 stays far from
/// its end.
constexpr std::int64_t exact_range(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 1 << 8;
    case DType::f16:
      return 1 << 11;
    case DType::f32:
      return 1 << 24;
    case DType::i32:
      return 1 << 24;
  }
  return 1 << 8;
}

/// Largest magnitude of a pattern of which `summands` are added.
std::int64_t pattern_range(DType dtype, int summands) {
  return std::max<std::int64_t>(1, exact_range(dtype) / std::max(summands, 16));
}

class PatternSource {
 public:
  PatternSource(Rank rank, std::uint64_t iteration, DType dtype, int summands)
      : key_(mix(mix(iteration + kGolden) + kGolden * static_cast<std::uint64_t>(rank))),
        range_(pattern_range(dtype, summands)) {}

  float at(Index element) const {
    const std::uint64_t random = mix(key_ + kGolden * static_cast<std::uint64_t>(element)) >> 32;
    const auto choices = static_cast<std::uint64_t>(2 * range_ + 1);
    return static_cast<float>(static_cast<std::int32_t>((random * choices) >> 32) -
                              static_cast<std::int32_t>(range_));
  }

 private:
  std::uint64_t key_;
  std::int64_t range_;
};

constexpr Index kFillChunk = 1024;

}  // namespace

double generated_value(const Tensor& tensor, std::uint64_t seed, int slot, Index row, Index col) {
  return Source(tensor, seed, slot).at(row, col);
}

void fill_tensor(const Tensor& tensor, int slot, std::byte* data, std::uint64_t seed) {
  if (tensor.fill == Fill::none) return;
  const Source source(tensor, seed, tensor.slot_offset + slot);
  if (tensor.dtype == DType::i32) return fill_integers(tensor, source, data);
  std::array<float, kFillChunk> buffer;
  for (Index row = 0; row < tensor.rows; ++row) {
    for (Index col = 0; col < tensor.cols; col += kFillChunk) {
      const Index n = std::min(kFillChunk, tensor.cols - col);
      source.fill(buffer.data(), tensor.row_offset + row, tensor.col_offset + col, n);
      from_f32(data + (row * tensor.cols + col) * size_of(tensor.dtype), buffer.data(),
               tensor.dtype, n);
    }
  }
}

double pattern_value(Rank rank, Index element, std::uint64_t iteration, DType dtype, int summands) {
  return PatternSource(rank, iteration, dtype, summands).at(element);
}

void fill_pattern(std::byte* data, Index elements, DType dtype, Rank rank, std::uint64_t iteration,
                  int summands, Index first) {
  const PatternSource source(rank, iteration, dtype, summands);
  std::array<float, kFillChunk> buffer;
  for (Index done = 0; done < elements; done += kFillChunk) {
    const Index n = std::min(kFillChunk, elements - done);
    for (Index i = 0; i < n; ++i) buffer[static_cast<std::size_t>(i)] = source.at(first + done + i);
    from_f32(data + done * size_of(dtype), buffer.data(), dtype, n);
  }
}

void poison(std::byte* data, Index elements, DType dtype) {
  std::array<float, kFillChunk> nothing;
  nothing.fill(
      std::numeric_limits<float>::quiet_NaN());  // which from_f32 turns into INT_MIN for i32
  for (Index first = 0; first < elements; first += kFillChunk) {
    from_f32(data + first * size_of(dtype), nothing.data(), dtype,
             std::min(kFillChunk, elements - first));
  }
}

}  // namespace weft
