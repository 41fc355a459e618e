// What weft-pairs shows on the screen: who reaches whom how fast.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace weft {

/// For each size, transport and test a matrix (rows: from, columns: to; medians over rounds) and
/// its worst, median and best pair; then the verdict. Matrices of more than 16 ranks are left out.
std::string pair_tables(const std::vector<Row>& rows, int ranks);

}  // namespace weft
