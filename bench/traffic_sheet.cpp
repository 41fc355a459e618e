#include "bench/traffic_sheet.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "bench/options.hpp"
#include "bench/text_table.hpp"

namespace weft {
namespace {

constexpr std::size_t kWidth = 100;

std::string positive(std::int64_t value) { return value > 0 ? fmt::format("{}", value) : ""; }
std::string positive_size(Bytes bytes) { return bytes > 0 ? size_text(bytes) : ""; }

/// "3" or "2.25".
std::string average(double value) { return value > 0 ? fmt::format("{:.4g}", value) : ""; }

std::string line_number(std::size_t index) { return fmt::format("{}", index + 1); }

bool same_pattern(const std::vector<TrafficLine>& lines) {
  return std::all_of(lines.begin(), lines.end(),
                     [&](const TrafficLine& line) { return line.pattern == lines[0].pattern; });
}

std::string operations_table(const std::vector<TrafficLine>& lines) {
  TextTable table({{"#", "", true},
                   {"pattern"},
                   {"dim"},
                   {"direction"},
                   {"collective"},
                   {"ops", "/iter", true},
                   {"bytes", "/op", true},
                   {"who -> whom"},
                   {"network"}});
  const bool one_pattern = same_pattern(lines);  // then the title names it
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const TrafficLine& line = lines[i];
    table.add({line_number(i), one_pattern ? "" : line.pattern, line.dimension, line.direction,
               line.collective, positive(line.operations), positive_size(line.bytes_per_operation),
               line.who, line.network});
  }
  return table.text();
}

std::string flows_table(const std::vector<TrafficLine>& lines) {
  TextTable table({{"#", "", true},
                   {"transport"},
                   {"algorithm"},
                   {"flows", "/sender", true},
                   {"flow p50", "/iter", true},
                   {"flow max", "/iter", true},
                   {"fan-in", "", true},
                   {"eff.", "1 QP", true},
                   {"flows", "4 QPs", true},
                   {"", "16 QPs", true},
                   {"source"}});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const TrafficLine& line = lines[i];
    table.add({line_number(i), line.transport, line.algorithm, average(line.flows_per_sender),
               positive_size(line.flow_p50), positive_size(line.flow_max), positive(line.fan_in),
               average(line.effective_flows[0]), average(line.effective_flows[1]),
               average(line.effective_flows[2]), line.flow_source});
  }
  return table.text();
}

std::string packets_table(const std::vector<TrafficLine>& lines) {
  TextTable table({{"#", "", true},
                   {"packets", "/iter", true},
                   {"payload bytes x how many"},
                   {"hidden", "", true},
                   {"link use", "", true},
                   {"needs"}});
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const TrafficLine& line = lines[i];
    table.add({line_number(i), positive(line.packets), line.packet_sizes,
               percent_cell(line.hidden_share), percent_cell(line.utilisation), line.needs});
  }
  return table.text();
}

std::string explanation(Bytes mtu) {
  const std::string flow =
      "A flow is all bytes from one rank to another in one iteration; effective flows = 2^entropy "
      "(by bytes): how many "
      "equal flows a switch's hash would see with 1, 4 or 16 queue pairs (QPs) a peer.";
  const std::string frames = fmt::format(
      "Packets: data direction, of at most {} B payload, also for wires without "
      "packets; hidden: share of "
      "communication behind compute; source: recorded (posted by us) or predicted (from the "
      "algorithm). Blank: unknown.",
      mtu);
  const std::string links =
      "Link use: of the busiest link, while nothing is computed; inside a host against the "
      "measured "
      "memory copy, which caches can exceed.";
  return wrapped(flow, kWidth, 0) + wrapped(frames, kWidth, 0) + wrapped(links, kWidth, 0);
}

}  // namespace

std::string traffic_sheet(const std::vector<TrafficLine>& lines, Bytes mtu) {
  if (lines.empty()) return "Traffic: none; no bytes leave a rank.\n";
  const std::string of = same_pattern(lines) ? fmt::format(" of {}", lines[0].pattern) : "";
  return fmt::format("Traffic{}, per iteration\n\nWhat is sent\n{}\nFlows\n{}\nOn the wire\n{}\n{}",
                     of, operations_table(lines), flows_table(lines), packets_table(lines),
                     explanation(mtu));
}

}  // namespace weft
