// What ends a run, in words for a newcomer: times, what the words mean, whether all is well.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/port_columns.hpp"
#include "bench/text_table.hpp"
#include "bench/times_table.hpp"
#include "bench/traffic_sheet.hpp"

namespace weft {
namespace {

constexpr std::size_t kWidth = 100;

bool noisy(const Row& row) {
  const std::string_view noise = row.get("noise");
  return !noise.empty() && noise != "0" && noise != "false";
}

std::string explanation(const std::vector<Row>& rows) {
  const std::pair<std::string_view, std::string_view> phases[] = {
      {"compute", "the kernels alone, nothing is sent"},
      {"comm", "the communication alone, nothing is computed"},
      {"serial", "one after the other: communication waits for compute, and compute for it"},
      {"overlap",
       "both at once, as training does; hidden = share of comm that costs no time there"}};
  std::string text;
  for (const auto& [phase, meaning] : phases) {
    const bool seen = std::any_of(rows.begin(), rows.end(), [name = phase](const Row& row) {
      return row.get("phase") == name;
    });
    if (seen) text += fmt::format("{:<8} {}\n", phase, meaning);
  }
  text +=
      "median   time until the slowest rank has ended, +- its 95% interval; * the fastest of "
      "several\n";
  if (std::any_of(rows.begin(), rows.end(),
                  [](const Row& row) { return !row.get("busbw_GBps").empty(); })) {
    text +=
        "busbw    size / median x the share that a ring sends: a model; wire_GBps in the CSV is "
        "what was sent\n";
  }
  return text;
}

std::string cell_text(const Row& row) {
  std::string text;
  for (std::string_view column : {"direction", "phase", "transport", "algorithm", "dtype"}) {
    if (row.get(column).empty()) continue;
    if (!text.empty()) text += ' ';
    text += row.get(column);
  }
  const std::string size = size_cell(row);
  return size.empty() ? text : fmt::format("{} {}", text, size);
}

/// Cells by reason, so that a reason is said once.
std::string reasons_text(const std::vector<Row>& rows, std::string_view what,
                         bool (*has)(const Row&)) {
  constexpr std::size_t kNamed = 4;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const Row& row : rows) {
    if (has(row)) by_reason[std::string(row.get("skip_reason"))].push_back(cell_text(row));
  }
  std::string text;
  for (auto& [reason, cells] : by_reason) {
    const std::size_t more = cells.size() - std::min(cells.size(), kNamed);
    cells.resize(cells.size() - more);
    const std::string others = more > 0 ? fmt::format("; and {} more", more) : "";
    text += wrapped(fmt::format("{}: {}{}: {}", what, fmt::join(cells, "; "), others, reason),
                    kWidth, 2);
  }
  return text;
}

std::string verdict(const std::vector<Row>& rows) {
  const auto count = [&](auto&& has) { return std::count_if(rows.begin(), rows.end(), has); };
  const auto failed = count(wrong);
  const auto run = count([](const Row& row) { return !skipped(row); });
  const auto good = count([](const Row& row) { return row.get("verified") == "true"; });
  std::string text;
  if (failed > 0) {
    text += fmt::format(
        "WRONG RESULTS in {} of {} cells: they have no times, and the run fails (exit 1).\n",
        failed, run);
  } else if (run > 0 && good == run) {
    text += fmt::format("All cells were verified before they were timed ({}).\n", run);
  } else if (run > 0) {
    text += fmt::format("{} of {} cells were verified; the others were not checked.\n", good, run);
  } else {
    text += "Nothing was run.\n";
  }
  if (const auto loud = count(noisy); loud > 0) {
    text += fmt::format(
        "{} cells are noisy: other work used the processors meanwhile (column noise).\n", loud);
  }
  return text;
}

std::string title(const std::vector<Row>& rows) {
  const auto common = [&](std::string_view column) {
    return varies(rows, column) ? std::string() : std::string(rows[0].get(column));
  };
  std::string text = "Times";
  if (!common("pattern").empty()) text += fmt::format(" of {}", common("pattern"));
  if (!common("world").empty())
    text += fmt::format(" on {} rank{}", common("world"), common("world") == "1" ? "" : "s");
  if (!common("hosts").empty())
    text += fmt::format(", {} host{}", common("hosts"), common("hosts") == "1" ? "" : "s");
  for (std::string_view column : {"model", "dtype", "direction", "options"}) {
    if (!common(column).empty()) text += fmt::format(", {}", common(column));
  }
  return wrapped(text, kWidth, 2);
}

}  // namespace

std::string summary(const std::vector<Row>& rows, const std::vector<std::string>& files) {
  if (rows.empty()) return "Nothing was run.\n";
  std::vector<Row> run;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(run),
               [](const Row& row) { return !skipped(row); });
  std::string text;
  if (!run.empty()) text += title(run) + "\n" + times_tables(run) + explanation(run) + "\n";
  text +=
      verdict(rows) + reasons_text(rows, "Wrong", wrong) + reasons_text(rows, "Not run", skipped);
  if (const std::string lost = losses_text(run, cell_text); !lost.empty())
    text += wrapped(lost, kWidth, 2);
  for (const std::string& file : files) text += fmt::format("Written: {}\n", file);
  return text;
}

}  // namespace weft
