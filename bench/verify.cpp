#include "bench/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "patterns/error.hpp"

namespace weft {
namespace {

std::int64_t integer(std::string_view text, const std::string& whole) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_usage(fmt::format("--inject '{}': '{}' is no whole number", whole, text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// The lowest rank's first failure, and the sums, known to all.
Verdict agree(Bootstrap& bootstrap, const Verdict& mine) {
  Verdict all;
  for (const std::string& why : bootstrap.all_gather(mine.why)) {
    if (!why.empty() && all.passed) {
      all.passed = false;
      all.why = why;
    }
  }
  all.exchanged = static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.exchanged)));
  all.results = static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.results)));
  all.beyond_budget =
      static_cast<std::int64_t>(bootstrap.sum(static_cast<double>(mine.beyond_budget)));
  return all;
}

}  // namespace

Injection Injection::parse(const std::string& text) {
  Injection result;
  if (text.empty()) return result;
  const auto at = text.find('@');
  if (at != std::string::npos) result.check = text.substr(at + 1);
  const auto parts = split(std::string_view(text).substr(0, at), ':');
  if (parts[0] == "corrupt" && parts.size() == 3) result.kind = Kind::corrupt;
  if (parts[0] == "half" && parts.size() == 3) result.kind = Kind::half;
  if (parts[0] == "swap" && parts.size() == 2) result.kind = Kind::swap;
  const bool known_check = result.check.empty() || result.check == "exchange" || result.check == "result";
  if (result.kind == Kind::none || !known_check) {
    fail_usage(fmt::format("--inject '{}': use corrupt:RANK:BYTE, half:RANK:ELEMENT or swap:RANK, "
                           "then @exchange or @result to confine it",
                           text));
  }
  result.rank = static_cast<Rank>(integer(parts[1], text));
  if (parts.size() == 3) result.where = integer(parts[2], text);
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

Verdict verify(Execution& execution, ResultCheck& check, Bootstrap& bootstrap,
               const Injection& injection) {
  execution.prepare();
  execution.iterate(Phase::serial);
  const Verdict serial = agree(bootstrap, check.run(execution, bootstrap, injection));
  const Verdict exchange = agree(bootstrap, verify_exchange(execution, bootstrap, injection));
  execution.prepare();
  execution.iterate(Phase::overlap);   // the same result must come out of two streams
  const Verdict overlap = agree(bootstrap, check.run(execution, bootstrap, injection));
  Verdict all = !serial.passed ? serial : !exchange.passed ? exchange : overlap;
  all.exchanged = exchange.exchanged;
  all.results = serial.results + overlap.results;
  all.beyond_budget = serial.beyond_budget;
  return all;
}

}  // namespace weft
