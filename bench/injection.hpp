// Fault injection, for tests of the verification itself (--inject, hidden).
#pragma once

#include <string>
#include <string_view>

#include "patterns/types.hpp"

namespace weft {

/// A fault to inject, for tests of the verification itself: "corrupt:RANK:BYTE" (xor of one byte;
/// negative from the end), "half:RANK:ELEMENT" (adds half a unit), "swap:RANK" (swaps the two
/// halves); "@exchange", "@result" or "@timed" behind it confines it to one check.
struct Injection {
  enum class Kind : std::uint8_t { none, corrupt, half, swap } kind = Kind::none;
  Rank rank = 0;
  std::int64_t where = 0;
  std::string check;
  /// Throws Error(usage) quoting the text.
  static Injection parse(const std::string& text);
  /// Damages the block if it is meant for this rank and check.
  void apply(std::string_view check_name, Rank rank, std::byte* data, Index elements,
             DType dtype) const;
};

}  // namespace weft
