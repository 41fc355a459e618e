// The matrix of token counts that --token-matrix names.
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "bench/option_values.hpp"
#include "bench/options.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kShape =
    "write N lines of N whole numbers, separated by commas (row sends to column)";

Index parse_cell(const std::string& path, int line, std::string_view text) {
  Index value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc() && stop == text.data() + text.size() && !text.empty();
  // Counts travel as 32-bit numbers.
  if (!read || value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
    fail_usage(fmt::format("{}: line {}: '{}' is no token count (0 to 2147483647); {}", path, line,
                           text, kShape));
  }
  return value;
}

std::vector<Index> parse_line(const std::string& path, int line, std::string_view text) {
  std::vector<Index> cells;
  for (std::string_view cell : split(text, ',')) cells.push_back(parse_cell(path, line, cell));
  return cells;
}

void check_square(const std::string& path, const std::vector<std::vector<Index>>& rows,
                  const std::vector<int>& lines) {
  if (rows.empty()) fail_usage(fmt::format("{}: there are no numbers in it; {}", path, kShape));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() == rows.size()) continue;
    fail_usage(fmt::format("{}: line {}: {} numbers, but the file has {} rows; {}", path, lines[i],
                           rows[i].size(), rows.size(), kShape));
  }
}

}  // namespace

std::vector<std::vector<Index>> read_token_matrix(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    fail_usage(
        fmt::format("--token-matrix: cannot read {}: {}; {}", path, std::strerror(errno), kShape));
  std::vector<std::vector<Index>> rows;
  std::vector<int> lines;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    if (line == 1 && text.starts_with("\xEF\xBB\xBF"))
      text.erase(0, 3);  // a spreadsheet's byte-order mark
    if (text.ends_with('\r')) text.pop_back();
    const std::string_view content = trimmed(text);
    if (content.empty() || content[0] == '#') continue;
    rows.push_back(parse_line(path, line, content));
    lines.push_back(line);
  }
  if (file.bad())
    fail_usage(fmt::format("--token-matrix: cannot read {}: it is no readable file", path));
  check_square(path, rows, lines);
  return rows;
}

}  // namespace weft
