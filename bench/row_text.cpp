#include "bench/row_text.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

/// JSON string; bytes that are no UTF-8 (host names, paths) are replaced.
std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class Cell>
std::string joined_columns(const std::vector<std::string_view>& columns, Cell&& cell) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) line += ',';
    line += cell(columns[i]);
  }
  return line;
}

}  // namespace

std::string csv_cell(std::string_view text) {
  const bool plain = text.find_first_of(",\"\r\n") == std::string_view::npos &&
                     (text.empty() || (text.front() != ' ' && text.back() != ' '));
  if (plain) return std::string(text);
  std::string cell = "\"";
  for (char c : text) {
    if (c == '"') cell += '"';
    cell += c;
  }
  return cell + '"';
}

std::string csv_header(const std::vector<std::string_view>& columns) {
  return joined_columns(columns, [](std::string_view column) { return std::string(column); }) +
         "\n";
}

std::string csv_line(const Row& row, const std::vector<std::string_view>& columns) {
  return joined_columns(columns,
                        [&](std::string_view column) { return csv_cell(row.get(column)); }) +
         "\n";
}

std::string json_object(const Row& row) {
  const auto member = [&](std::string_view column) {
    const std::string_view text = row.get(column);
    std::string value = "null";
    if (!text.empty()) value = row.numeric(column) ? std::string(text) : quoted(text);
    return fmt::format("{}:{}", quoted(column), value);
  };
  return fmt::format("{{{}}}", joined_columns(columns(), member));
}

}  // namespace weft
