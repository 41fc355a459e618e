#include "bench/times_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "bench/options.hpp"
#include "bench/text_table.hpp"

namespace weft {
namespace {

using Key = std::vector<std::string>;

/// What cells of one table have in common.
constexpr std::string_view kSection[] = {"pattern",   "dimension", "model", "dtype",
                                         "direction", "options",   "cache", "repetition"};

Key section_of(const Row& row) {
  Key key;
  for (std::string_view column : kSection) key.emplace_back(row.get(column));
  return key;
}

/// Competitors: the same work by other transports and algorithms.
Key work_of(const Row& row) { return {std::string(row.get("phase")), size_cell(row)}; }

bool timed(const Row& row) { return !skipped(row) && !wrong(row) && !row.get("t_p50_us").empty(); }

struct Best {
  double time = INFINITY;
  int competitors = 0;
};

std::map<Key, Best> fastest(const std::vector<Row>& rows) {
  std::map<Key, Best> best;
  for (const Row& row : rows) {
    if (!timed(row)) continue;
    Best& entry = best[work_of(row)];
    entry.time = std::min(entry.time, row.number("t_p50_us"));
    ++entry.competitors;
  }
  return best;
}

/// The order of a person's questions; rows come in the order they were measured in, which is
/// shuffled.
std::tuple<std::size_t, double, std::string, std::string> place_of(const Row& row) {
  const Phase phases[] = {Phase::compute, Phase::comm, Phase::serial, Phase::overlap};
  std::size_t phase = 0;
  while (phase < std::size(phases) && row.get("phase") != to_string(phases[phase])) ++phase;
  const double size = row.number("size");
  return {phase, std::isnan(size) ? 0 : size, std::string(row.get("transport")),
          std::string(row.get("algorithm"))};
}

/// Half the width of the median's interval, relative to it.
std::string interval_cell(const Row& row) {
  const double half = (row.number("t_ci_high_us") - row.number("t_ci_low_us")) / 2;
  return percent_cell(half / row.number("t_p50_us"));
}

std::string verified_cell(const Row& row) {
  if (row.get("verified") == "true") return "yes";
  return wrong(row) ? "WRONG" : "no";
}

struct Shown {
  TextTable::Column column;
  std::function<std::string(const Row&)> cell;
};

Shown text_column(std::string_view head, std::string_view column, bool right = false) {
  return {{std::string(head), "", right},
          [column](const Row& row) { return std::string(row.get(column)); }};
}

Shown result_column(std::string_view head, std::string_view unit,
                    std::function<std::string(const Row&)> cell) {
  return {{std::string(head), std::string(unit), true},
          [cell = std::move(cell)](const Row& row) { return wrong(row) ? "" : cell(row); }};
}

Shown number_column(std::string_view head, std::string_view unit, std::string_view column) {
  return result_column(head, unit,
                       [column](const Row& row) { return number_cell(row.number(column)); });
}

std::vector<Shown> shown_columns(const std::map<Key, Best>& best) {
  const auto median = [&best](const Row& row) {
    if (!timed(row)) return std::string();
    const Best& entry = best.at(work_of(row));
    // Kernels alone do not depend on the transport.
    const bool first = row.get("phase") != to_string(Phase::compute) && entry.competitors > 1 &&
                       row.number("t_p50_us") == entry.time;
    return number_cell(row.number("t_p50_us")) + (first ? "*" : " ");
  };
  return {text_column("phase", "phase"),
          {{"size", "", true}, size_cell},
          text_column("transport", "transport"),
          text_column("algorithm", "algorithm"),
          result_column("median ", "us ", median),
          result_column("+-", "", interval_cell),
          number_column("worst", "us", "t_max_us"),
          number_column("busbw", "GB/s", "busbw_GBps"),
          result_column("hidden", "",
                        [](const Row& row) { return percent_cell(row.number("hidden_share")); }),
          text_column("n", "n", true),
          {{"ok"}, verified_cell}};
}

std::string table_of(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return place_of(a) < place_of(b); });
  const std::map<Key, Best> best = fastest(rows);
  const std::vector<Shown> shown = shown_columns(best);
  std::vector<TextTable::Column> heads;
  for (const Shown& one : shown) heads.push_back(one.column);
  TextTable table(std::move(heads));
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Shown& one : shown) cells.push_back(one.cell(row));
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace

bool wrong(const Row& row) { return row.get("verified") == "false"; }

bool skipped(const Row& row) { return !row.get("skip_reason").empty() && !wrong(row); }

bool varies(const std::vector<Row>& rows, std::string_view column) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row.get(column) != rows.front().get(column); });
}

std::string size_cell(const Row& row) {
  double size = row.number("size");
  if (std::isnan(size)) size = row.number("bytes_logical");
  return std::isnan(size) ? "" : size_text(static_cast<Bytes>(size));
}

std::string times_tables(const std::vector<Row>& rows) {
  std::map<Key, std::vector<Row>> sections;
  for (const Row& row : rows) sections[section_of(row)].push_back(row);
  std::string text;
  for (const auto& [key, members] : sections) {
    std::string title;
    for (std::size_t i = 0; i < key.size(); ++i) {
      if (!key[i].empty() && varies(rows, kSection[i]))
        title += fmt::format("{}{}", title.empty() ? "" : ", ", key[i]);
    }
    if (!title.empty()) text += title + "\n";
    text += table_of(members) + "\n";
  }
  return text;
}

}  // namespace weft
