// Sizes and series of sizes, as texts. Whole numbers only: nothing is rounded in silence.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "bench/option_values.hpp"
#include "bench/options.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kMostSizes =
    10'000;  // of one --sizes: more is a slip ("8:1T:+1"), not a sweep
constexpr double kExactInDouble = 0x1p53;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

[[noreturn]] void bad_size(std::string_view text, std::string_view why) {
  fail_usage(fmt::format(
      "'{}' is no size: {}; write bytes as 4096, 64K or 64KiB (1024 x 64), 64KB (1000 x 64), 1e6",
      text, why));
}

bool digit(char c) { return c >= '0' && c <= '9'; }

/// Length of the number that `text` begins with: digits, a point, an exponent.
std::size_t number_length(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && (digit(text[end]) || text[end] == '.')) ++end;
  if (end + 1 < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (text[exponent] == '+' || text[exponent] == '-') ++exponent;
    const std::size_t first = exponent;
    while (exponent < text.size() && digit(text[exponent])) ++exponent;
    if (exponent > first) end = exponent;
  }
  return end;
}

/// 0: unknown.
Bytes unit_of(std::string_view suffix) {
  const std::string unit = lower(suffix);
  if (unit.empty() || unit == "b") return 1;
  const std::size_t power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string_view rest = std::string_view(unit).substr(1);
  Bytes base = 0;
  if (rest.empty() || rest == "i" || rest == "ib") base = 1024;
  if (rest == "b") base = 1000;
  Bytes factor = base;
  for (std::size_t i = 0; i < power; ++i) factor *= base;
  return factor;
}

/// A number with point or exponent: taken if it comes to a whole number of bytes.
Bytes fractional_size(std::string_view text, std::string_view number, Bytes unit) {
  double value = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value);
  if (error != std::errc() || stop != end) bad_size(text, "its number cannot be read");
  value *= static_cast<double>(unit);
  if (value > kExactInDouble) bad_size(text, "it is too large for a number with point or exponent");
  if (value != std::floor(value)) bad_size(text, "it is not a whole number of bytes");
  return static_cast<Bytes>(value);
}

struct Series {
  std::string_view text;  // the part as given, for errors
  Bytes from = 0, to = 0;
  Bytes factor = 0, step = 0;  // one of them is set
};

[[noreturn]] void bad_series(std::string_view part, std::string_view why) {
  fail_usage(
      fmt::format("--sizes: '{}': {}; write FROM:TO:xF (times F, whole, 2 or more), FROM:TO:+S "
                  "(steps of S bytes), "
                  "FROM:TO (x2) or one size",
                  part, why));
}

Bytes size_in(std::string_view part, std::string_view text) {
  try {
    return parse_size(text);
  } catch (const Error& error) {
    if (trimmed(text) == part) fail_usage(fmt::format("--sizes: {}", error.what()));
    fail_usage(fmt::format("--sizes: in '{}': {}", part, error.what()));
  }
}

void parse_increment(std::string_view text, Series& series) {
  const std::string_view rest = text.empty() ? text : text.substr(1);
  if (text.empty() || (text[0] != 'x' && text[0] != 'X' && text[0] != '+')) {
    bad_series(series.text,
               fmt::format("the step '{}' needs x (times) or + (steps of bytes) before it", text));
  }
  if (text[0] == '+') {
    series.step = size_in(series.text, rest);
    if (series.step < 1) bad_series(series.text, "a step of 0 bytes never ends");
    return;
  }
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), series.factor);
  if (error != std::errc() || stop != rest.data() + rest.size()) {
    bad_series(series.text, fmt::format("the factor '{}' is not a whole number", rest));
  }
  if (series.factor < 2)
    bad_series(series.text, fmt::format("a factor of {} never ends", series.factor));
}

Series parse_series(std::string_view part) {
  Series series{.text = part};
  const std::size_t first = part.find(':');
  series.from = size_in(part, part.substr(0, first));
  series.to = series.from;
  series.factor = 2;
  if (first != std::string_view::npos) {
    const std::size_t second = part.find(':', first + 1);
    series.to = size_in(
        part,
        part.substr(first + 1, second == std::string_view::npos ? second : second - first - 1));
    if (second != std::string_view::npos) {
      series.factor = 0;
      parse_increment(trimmed(part.substr(second + 1)), series);
    }
  }
  if (series.from < 1) bad_series(part, "a message has 1 byte at least");
  if (series.from > series.to)
    bad_series(part, fmt::format("it runs down, from {} to {} bytes", series.from, series.to));
  return series;
}

void expand(const Series& series, std::set<Bytes>& sizes) {
  for (Bytes size = series.from;;) {
    sizes.insert(size);
    if (sizes.size() > kMostSizes) {
      bad_series(series.text, fmt::format("that is more than {} sizes", kMostSizes));
    }
    const bool over =
        series.step > 0 ? size > series.to - series.step : size > series.to / series.factor;
    if (over) return;
    size = series.step > 0 ? size + series.step : size * series.factor;
  }
}

}  // namespace

Bytes parse_size(std::string_view text) {
  const std::string_view whole = trimmed(text);
  if (whole.empty()) bad_size(text, "it is empty");
  if (whole[0] == '-') bad_size(text, "it is negative");
  const std::size_t length = number_length(whole);
  const std::string_view number = whole.substr(0, length);
  if (length == 0 || !digit(number[0])) bad_size(text, "it does not begin with a digit");
  const std::string_view suffix = trimmed(whole.substr(length));
  const Bytes unit = unit_of(suffix);
  if (unit == 0) bad_size(text, fmt::format("'{}' is no unit", suffix));
  if (number.find_first_of(".eE") != std::string_view::npos)
    return fractional_size(text, number, unit);
  Bytes count = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), count);
  if (error != std::errc() || count > std::numeric_limits<Bytes>::max() / unit) {
    bad_size(text, "it does not fit into 63 bits");
  }
  return count * unit;
}

std::vector<Bytes> parse_sizes(std::string_view text) {
  std::set<Bytes> sizes;
  for (std::string_view part : split(text, ',')) {
    if (part.empty()) bad_series(text, "there is an empty part");
    expand(parse_series(part), sizes);
  }
  return {sizes.begin(), sizes.end()};
}

std::string size_text(Bytes bytes) {
  static constexpr std::string_view kPrefixes = "KMGT";
  if (bytes < 1024) return fmt::format("{} B", bytes);
  Bytes unit = 1024, thousand = 1000;
  std::size_t prefix = 0;
  while (prefix + 1 < kPrefixes.size() && bytes / unit >= 1024) {
    unit *= 1024;
    thousand *= 1000;
    ++prefix;
  }
  if (bytes % unit == 0) return fmt::format("{} {}iB", bytes / unit, kPrefixes[prefix]);
  if (bytes % thousand == 0) return fmt::format("{} {}B", bytes / thousand, kPrefixes[prefix]);
  return fmt::format("{:.2f} {}iB", static_cast<double>(bytes) / static_cast<double>(unit),
                     kPrefixes[prefix]);
}

}  // namespace weft
