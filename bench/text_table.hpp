// Tables for a terminal: two head lines (name, unit), columns as wide as they must be, blank
// columns left out.
//
//   TextTable table({{"size"}, {"median", "us", true}});
//   table.add({"64 KiB", "12.5"});
//   std::string text = table.text();
#pragma once

#include <string>
#include <vector>

namespace weft {

class TextTable {
 public:
  struct Column {
    std::string head;
    std::string unit = {};
    bool right = false;  // numbers
  };
  explicit TextTable(std::vector<Column> columns);
  /// One cell a column. Throws std::logic_error on another number.
  void add(std::vector<std::string> cells);
  /// Ends with a newline. Columns whose cells are all blank are not shown; a unit line only where a
  /// shown column has a unit.
  std::string text() const;

 private:
  std::vector<std::size_t> shown() const;
  std::size_t width(std::size_t column) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Four significant digits or so: "0.00492", "1.234", "12.35", "123.5", "1235"; blank for NaN.
std::string number_cell(double value);
/// "42%"; blank for NaN.
std::string percent_cell(double share);

/// `text` in lines of at most `width` columns, broken at spaces; lines after the first begin with
/// `indent` spaces.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

}  // namespace weft
