#include "bench/injection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bench/option_values.hpp"
#include "kernels/backend.hpp"
#include "patterns/error.hpp"

namespace weft {

Injection Injection::parse(const std::string& text) {
  Injection result;
  if (text.empty()) return result;
  const auto at = text.find('@');
  if (at != std::string::npos) result.check = text.substr(at + 1);
  const auto parts = split(std::string_view(text).substr(0, at), ':');
  if (parts[0] == "corrupt" && parts.size() == 3) result.kind = Kind::corrupt;
  if (parts[0] == "half" && parts.size() == 3) result.kind = Kind::half;
  if (parts[0] == "swap" && parts.size() == 2) result.kind = Kind::swap;
  const bool known_check = result.check.empty() || result.check == "exchange" ||
                           result.check == "result" || result.check == "timed";
  if (result.kind == Kind::none || !known_check) {
    fail_usage(
        fmt::format("--inject '{}': use corrupt:RANK:BYTE, half:RANK:ELEMENT or swap:RANK, "
                    "then @exchange, @result or @timed to confine it",
                    text));
  }
  result.rank = static_cast<Rank>(parse_integer(parts[1], "--inject", 0, 1 << 30));
  if (parts.size() == 3)
    result.where = parse_integer(parts[2], "--inject", std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max());
  return result;
}

void Injection::apply(std::string_view check_name, Rank mine, std::byte* data, Index elements,
                      DType dtype) const {
  if (kind == Kind::none || mine != rank || elements == 0) return;
  if (!check.empty() && check != check_name) return;
  const Bytes bytes = elements * size_of(dtype);
  if (kind == Kind::corrupt) {
    data[((where % bytes) + bytes) % bytes] ^= std::byte{0x5a};
  } else if (kind == Kind::half) {
    const Index element = ((where % elements) + elements) % elements;
    store_element(data, dtype, element, load_element(data, dtype, element) + 0.5);
  } else {
    const Bytes half = elements / 2 * size_of(dtype);
    std::swap_ranges(data, data + half, data + half);
  }
}

}  // namespace weft
