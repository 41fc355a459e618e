// One CSV row: the columns of results/SCHEMA.md, in order. Blank means unknown; never 0 for
// unknown.
//
//   Row row;
//   row.set("pattern", "tp-allgather"); row.set("t_p50_us", 12.5); row.set("world", 4);
//
// Wrong: a column that is not in the schema (throws std::logic_error).
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

inline constexpr std::string_view kSchema = "weft-2";

/// The columns in their order.
const std::vector<std::string_view>& columns();
/// Those of a line of --traffic: which cell, which part, and the traffic groups.
const std::vector<std::string_view>& traffic_file_columns();

class Row {
 public:
  void set(std::string_view column,
           std::string_view text);  // line breaks become spaces; "" is blank
  void set(std::string_view column, const char* text) { set(column, std::string_view(text)); }
  void set(std::string_view column, const std::string& text) {
    set(column, std::string_view(text));
  }
  void set(std::string_view column, double value);  // shortest text that reads back equal to 6
                                                    // significant digits; NaN and inf: blank
  void set(std::string_view column, std::int64_t value);
  void set(std::string_view column, int value) { set(column, static_cast<std::int64_t>(value)); }
  void set(std::string_view column, bool value);
  std::string_view get(std::string_view column) const;  // "" if blank
  double number(std::string_view column) const;         // NaN if blank
  bool numeric(
      std::string_view column) const;  // set from a number or a bool: JSON writes it unquoted

 private:
  void put(std::string_view column, std::string text, bool number);

  struct Value {
    std::string text;
    bool number = false;
  };
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace weft
