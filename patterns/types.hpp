// The vocabulary of the whole suite: ranks, data types, dimensions of parallelism.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

using Rank = int;  // 0-based; global (in the world) unless a name says otherwise
using Bytes =
    std::int64_t;  // signed, so that differences are safe; 64 bits, so that 2 GiB is nothing
using Index = std::int64_t;  // counts of elements, rows, columns

enum class DType : std::uint8_t { f32, bf16, f16, i32 };

/// Bytes of one element.
constexpr Bytes size_of(DType type) { return type == DType::f32 || type == DType::i32 ? 4 : 2; }

/// Unit roundoff u of a floating type (half the spacing at 1): 2^-24, 2^-8, 2^-11. Zero for i32.
constexpr double unit_roundoff(DType type) {
  switch (type) {
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    case DType::i32:
      return 0.0;
  }
  return 0.0;
}

std::string_view to_string(DType type);
/// "f32" | "bf16" | "f16" (any case); nothing for another text.
std::optional<DType> parse_dtype(std::string_view text);

/// The dimension of parallelism a step communicates in. `none`: a compute step, or a sweep.
enum class Dimension : std::uint8_t { tp, cp, ep, dp, pp, none };
std::string_view to_string(Dimension dimension);

/// Which way through the network a program goes.
enum class Direction : std::uint8_t { forward, backward, both };
std::string_view to_string(Direction direction);

/// The two in-order queues of work of a rank. Between them only `after` orders.
enum class StreamRole : std::uint8_t { compute, comm };
std::string_view to_string(StreamRole stream);

enum class Activation : std::uint8_t { identity, relu, gelu, swiglu };
std::string_view to_string(Activation activation);

}  // namespace weft
