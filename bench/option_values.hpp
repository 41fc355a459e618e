// Texts of options to values. Independent of the locale; errors quote the text and name the option.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// Without spaces and tabs at both ends.
std::string_view trimmed(std::string_view text);

/// The parts between separators, trimmed. "" is one empty part.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Whole number in [low, high]. All parse_*() throw Error(usage).
std::int64_t parse_integer(std::string_view text, std::string_view option, std::int64_t low,
                           std::int64_t high);
std::uint64_t parse_unsigned(std::string_view text, std::string_view option);

/// Decimal number with a point, in [low, high]; "inf", "nan" and a decimal comma are errors.
double parse_number(std::string_view text, std::string_view option, double low, double high);

/// "2%" or "0.02": more than 0, less than 1.
double parse_share(std::string_view text, std::string_view option);

[[noreturn]] void fail_choice(std::string_view text, std::string_view option,
                              const std::vector<std::string_view>& known);

/// The value that goes with a name; the error lists the names.
template <class T>
T parse_choice(std::string_view text, std::string_view option,
               std::initializer_list<std::pair<std::string_view, T>> choices) {
  std::vector<std::string_view> known;
  for (const auto& [name, value] : choices) {
    if (trimmed(text) == name) return value;
    known.push_back(name);
  }
  fail_choice(text, option, known);
}

/// Names of comma-separated lists, in order, without repeats. Throws Error(usage) on an empty name.
std::vector<std::string> parse_names(const std::vector<std::string>& texts,
                                     std::string_view option);

/// The known text nearest to `text` by edits, empty if none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& known);

}  // namespace weft
