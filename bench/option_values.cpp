#include "bench/option_values.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "patterns/error.hpp"

namespace weft {
namespace {

template <class T>
bool read_whole(std::string_view text, T& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

/// Levenshtein's distance.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(trimmed(text.substr(begin, end == std::string_view::npos ? end : end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::int64_t parse_integer(std::string_view text, std::string_view option, std::int64_t low,
                           std::int64_t high) {
  std::int64_t value = 0;
  if (!read_whole(trimmed(text), value) || value < low || value > high) {
    fail_usage(
        fmt::format("{}: '{}' is not a whole number from {} to {}", option, text, low, high));
  }
  return value;
}

std::uint64_t parse_unsigned(std::string_view text, std::string_view option) {
  std::uint64_t value = 0;
  if (!read_whole(trimmed(text), value)) {
    fail_usage(fmt::format("{}: '{}' is not a whole number from 0 to 2^64-1", option, text));
  }
  return value;
}

double parse_number(std::string_view text, std::string_view option, double low, double high) {
  double value = 0;
  if (!read_whole(trimmed(text), value) || !std::isfinite(value) || value < low || value > high) {
    fail_usage(fmt::format("{}: '{}' is not a number from {} to {} (decimal point, no unit)",
                           option, text, low, high));
  }
  return value;
}

double parse_share(std::string_view text, std::string_view option) {
  std::string_view number = trimmed(text);
  const bool percent = number.ends_with('%');
  if (percent) number = trimmed(number.substr(0, number.size() - 1));
  double value = 0;
  const bool read = read_whole(number, value);
  if (percent) value /= 100;
  if (!read || !(value > 0) || !(value < 1)) {
    fail_usage(fmt::format("{}: '{}' is not between 0 and 1; write 2% or 0.02", option, text));
  }
  return value;
}

void fail_choice(std::string_view text, std::string_view option,
                 const std::vector<std::string_view>& known) {
  fail_usage(fmt::format("{}: '{}' is unknown; choose {}", option, text, fmt::join(known, ", ")));
}

std::vector<std::string> parse_names(const std::vector<std::string>& texts,
                                     std::string_view option) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    for (std::string_view name : split(text, ',')) {
      if (name.empty())
        fail_usage(fmt::format("{}: '{}' has an empty name; write a,b", option, text));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    }
  }
  return names;
}

std::string nearest(std::string_view text, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_edits = text.size() / 3 + 1;  // a third of the letters may be wrong
  for (const std::string& candidate : known) {
    const std::size_t distance = edits(text, candidate);
    if (distance > best_edits || (distance == best_edits && !best.empty())) continue;
    best = candidate;
    best_edits = distance;
  }
  return best;
}

}  // namespace weft
