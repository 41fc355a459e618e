#include "bench/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

/// Columns a UTF-8 text takes: continuation bytes take none.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string aligned(const std::string& text, std::size_t width, bool right) {
  const std::string padding(width - std::min(width, display_width(text)), ' ');
  return right ? padding + text : text + padding;
}

}  // namespace

TextTable::TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

void TextTable::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) {
    throw std::logic_error(fmt::format("{} cells for {} columns", cells.size(), columns_.size()));
  }
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::shown() const {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (std::any_of(rows_.begin(), rows_.end(), [c](const auto& row) { return !row[c].empty(); }))
      columns.push_back(c);
  }
  return columns;
}

std::size_t TextTable::width(std::size_t column) const {
  std::size_t widest =
      std::max(display_width(columns_[column].head), display_width(columns_[column].unit));
  for (const auto& row : rows_) widest = std::max(widest, display_width(row[column]));
  return widest;
}

std::string TextTable::text() const {
  const std::vector<std::size_t> columns = shown();
  std::string out;
  const auto line = [&](auto&& cell) {
    std::string text;
    for (std::size_t c : columns) {
      if (c != columns.front()) text += "  ";
      text += aligned(cell(c), width(c), columns_[c].right);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) { return columns_[c].head; });
  if (std::any_of(columns.begin(), columns.end(),
                  [&](std::size_t c) { return !columns_[c].unit.empty(); })) {
    line([&](std::size_t c) { return columns_[c].unit; });
  }
  line([&](std::size_t c) { return std::string(width(c), '-'); });
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
  return out;
}

std::string number_cell(double value) {
  if (std::isnan(value)) return {};
  const double size = std::abs(value);
  if (size < 0.1) return fmt::format("{:.3g}", value);
  if (size < 10) return fmt::format("{:.3f}", value);
  if (size < 100) return fmt::format("{:.2f}", value);
  return size < 1000 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string percent_cell(double share) {
  if (std::isnan(share)) return {};
  const bool small = std::abs(share) < 0.0995;
  return small ? fmt::format("{:.1f}%", 100 * share) : fmt::format("{:.0f}%", 100 * share);
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool first = column == 0;
    if (!first && column + 1 + display_width(word) > width) {
      out += '\n';
      out.append(indent, ' ') += word;
      column = indent + display_width(word);
    } else {
      if (!first) out += ' ';
      out += word;
      column += display_width(word) + (first ? 0 : 1);
    }
    begin = end + 1;
  }
  return out + "\n";
}

}  // namespace weft
