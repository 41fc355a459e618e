// The tables of times inside the summary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/row.hpp"

namespace weft {

bool wrong(const Row& row);    // its results failed the verification; it has no times
bool skipped(const Row& row);  // it could not run

/// True if the rows have different texts in a column.
bool varies(const std::vector<Row>& rows, std::string_view column);

/// "64 KiB": a sweep's size, or what a model's cell sends; blank if neither is known.
std::string size_cell(const Row& row);

/// A table for each set of cells that have all but phase, size, transport and algorithm in common,
/// under a title that tells what differs from the other tables. The fastest of several is marked.
std::string times_tables(const std::vector<Row>& rows);

}  // namespace weft
