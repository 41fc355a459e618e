#include "bench/pair_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "bench/options.hpp"
#include "bench/text_table.hpp"

namespace weft {
namespace {

constexpr int kWidestMatrix = 16;
constexpr std::size_t kWidth = 100;

using Ends = std::pair<int, int>;                    // from, to
using Values = std::map<Ends, std::vector<double>>;  // of all rounds

/// What is shown of a test.
struct Figure {
  std::string_view test, column, unit;
  bool less_is_better;
};
constexpr Figure kFigures[] = {{"latency", "t_p50_us", "us", true},
                               {"bandwidth", "algbw_GBps", "GB/s", false},
                               {"bidirectional", "algbw_GBps", "GB/s", false}};

const Figure& figure_of(std::string_view test) {
  return *std::ranges::find(kFigures, test, &Figure::test);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string matrix(const std::map<Ends, double>& medians, int ranks) {
  std::vector<TextTable::Column> columns{{"from\\to", {}, true}};
  for (int to = 0; to < ranks; ++to) columns.push_back({fmt::format("{}", to), {}, true});
  TextTable table(columns);
  for (int from = 0; from < ranks; ++from) {
    std::vector<std::string> cells{fmt::format("{}", from)};
    for (int to = 0; to < ranks; ++to) {
      const auto found = medians.find({from, to});
      cells.push_back(found == medians.end() ? (from == to ? "-" : "")
                                             : number_cell(found->second));
    }
    table.add(cells);
  }
  return table.text();
}

std::string extremes(const std::map<Ends, double>& medians, const Figure& figure) {
  std::vector<std::pair<double, Ends>> sorted;
  for (const auto& [ends, value] : medians) sorted.emplace_back(value, ends);
  std::ranges::sort(sorted);
  if (figure.less_is_better) std::ranges::reverse(sorted);
  std::vector<double> values;
  for (const auto& [value, ends] : sorted) values.push_back(value);
  const auto text = [&](const std::pair<double, Ends>& one) {
    return fmt::format("{} {} ({} -> {})", number_cell(one.first), figure.unit, one.second.first,
                       one.second.second);
  };
  return fmt::format("worst {}, median {} {}, best {}\n", text(sorted.front()),
                     number_cell(median(values)), figure.unit, text(sorted.back()));
}

std::string verdict(const std::vector<Row>& rows) {
  std::map<std::string, int> reasons;
  int wrong = 0, good = 0;
  for (const Row& row : rows) {
    wrong += row.get("verified") == "false";
    good += row.get("verified") == "true";
    if (!row.get("skip_reason").empty()) ++reasons[std::string(row.get("skip_reason"))];
  }
  std::string text;
  if (wrong > 0) {
    text += fmt::format(
        "WRONG RESULTS in {} of {} cells: they have no times, and the run fails (exit 1).\n", wrong,
        rows.size());
  } else if (good > 0) {
    text += fmt::format("All cells were verified before they were timed ({}).\n", good);
  }
  for (const auto& [reason, count] : reasons) {
    text += wrapped(fmt::format("{} cells without times: {}", count, reason), kWidth, 2);
  }
  return text;
}

}  // namespace

std::string pair_tables(const std::vector<Row>& rows, int ranks) {
  using Key = std::tuple<double, std::string, std::size_t>;  // size, transport, test
  std::map<Key, Values> groups;
  for (const Row& row : rows) {
    const Figure& figure = figure_of(row.get("test"));
    const double value = row.number(figure.column);
    if (!(value > 0)) continue;
    const auto test = static_cast<std::size_t>(&figure - kFigures);
    groups[{row.number("size"), std::string(row.get("transport")), test}]
          [{static_cast<int>(row.number("peer_from")), static_cast<int>(row.number("peer_to"))}]
              .push_back(value);
  }
  std::string text;
  for (const auto& [key, values] : groups) {
    const auto& [size, transport, test] = key;
    const Figure& figure = kFigures[test];
    std::map<Ends, double> medians;
    for (const auto& [ends, all] : values) medians[ends] = median(all);
    text += fmt::format("{} of {} by {}, {}{}\n", figure.test, size_text(static_cast<Bytes>(size)),
                        transport, figure.unit,
                        figure.test == "bidirectional" ? ", both directions together" : "");
    if (ranks <= kWidestMatrix) text += matrix(medians, ranks);
    text += extremes(medians, figure) + "\n";
  }
  if (!groups.empty() && ranks > kWidestMatrix) {
    text += fmt::format("Matrices of more than {} ranks are in the CSV only.\n", kWidestMatrix);
  }
  return text + verdict(rows);
}

}  // namespace weft
