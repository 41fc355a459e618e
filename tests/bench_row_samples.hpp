// A row to write, and files to read back, for the tests of rows and of their files.
#pragma once

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/row.hpp"

namespace weft {

inline std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(slurp(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

inline std::size_t commas(const std::string& line) {
  return static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
}

inline Row sample_row(int world = 4) {
  Row row;
  row.set("schema", kSchema);
  row.set("pattern", "tp-allgather");
  row.set("world", world);
  row.set("t_p50_us", 12.5);
  row.set("verified", true);
  return row;
}

}  // namespace weft
