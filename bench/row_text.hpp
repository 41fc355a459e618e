// A row, a provenance, as lines of text.
#pragma once

#include <string>

#include "bench/row.hpp"

namespace weft {

/// The header line and a row's line of the CSV (RFC 4180 quotes where needed), with newline.
std::string csv_header(const std::vector<std::string_view>& columns = weft::columns());
std::string csv_line(const Row& row,
                     const std::vector<std::string_view>& columns = weft::columns());
/// A cell, quoted if it holds a comma, a quote or spaces at its ends.
std::string csv_cell(std::string_view text);

/// All columns in order; numbers and true/false bare, blanks null.
std::string json_object(const Row& row);

}  // namespace weft
