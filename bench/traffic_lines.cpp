// Lines of the traffic sheet, from what was accounted.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>

#include "bench/cell_row.hpp"
#include "bench/packets.hpp"

namespace weft {
namespace {

constexpr std::size_t kShownPayloads = 2;

std::string operations_text(const std::vector<const BoundCommunication*>& steps) {
  std::map<std::string, int> kinds;
  for (const BoundCommunication* step : steps) {
    const bool p2p = step->operation.kind == OperationKind::point_to_point;
    ++kinds[p2p ? "send/recv" : std::string(to_string(step->operation.kind))];
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(fmt::format("{} x{}", kind, count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::map<Rank, std::set<Rank>> peers_by_sender(const std::vector<Flow>& flows) {
  std::map<Rank, std::set<Rank>> peers;
  for (const Flow& flow : flows) peers[flow.source].insert(flow.destination);
  return peers;
}

/// "4 ranks -> 3 peers each", "3 ranks -> 1 peer each, 0 -> 1"; the example where it tells the
/// rest.
std::string who_text(const std::map<Rank, std::set<Rank>>& peers) {
  std::size_t least = peers.begin()->second.size(), most = least;
  for (const auto& [rank, others] : peers) {
    least = std::min(least, others.size());
    most = std::max(most, others.size());
  }
  const auto& [first, others] = *peers.begin();
  const std::string each =
      least == most ? fmt::format("{}", most) : fmt::format("{}-{}", least, most);
  return fmt::format("{} rank{} -> {} peer{}{}", peers.size(), peers.size() == 1 ? "" : "s", each,
                     most == 1 ? "" : "s",
                     most == 1 ? fmt::format(", {} -> {}", first, *others.begin()) : "");
}

std::string network_text(const FlowLedger& part) {
  const bool up = part.bytes(MessageKind::payload, Network::scale_up) > 0;
  const bool out = part.bytes(MessageKind::payload, Network::scale_out) > 0;
  return up && out ? "both" : out ? "scale_out" : "scale_up";
}

void add_flows(TrafficLine& line, const FlowLedger& part, Bytes mtu) {
  const std::vector<Flow> flows = network_flows(part.flows());
  if (flows.empty()) return;
  const FlowStatistics statistics = statistics_of(flows);
  const auto peers = peers_by_sender(flows);
  line.who = who_text(peers);
  line.network = network_text(part);
  line.flows_per_sender = static_cast<double>(statistics.flows) / static_cast<double>(peers.size());
  line.flow_p50 = statistics.flow_p50;
  line.flow_max = statistics.flow_max;
  line.fan_in = statistics.fan_in_max;
  // Queue pairs share a pair's bytes evenly, so q of them add log2 q bits to the entropy.
  const int queue_pairs[] = {1, 4, 16};
  for (int i = 0; i < 3; ++i) line.effective_flows[i] = statistics.effective_flows * queue_pairs[i];
  const SizeHistogram messages = part.messages();
  line.packets = packets_of(messages, mtu).data.count();
  line.packet_sizes = payload_text(messages, mtu, kShownPayloads);
}

TrafficLine line_of(const RunContext& context, const Cell& cell) {
  const Case& c = context.plan.cases[cell.case_index];
  TrafficLine line;
  line.pattern = context.plan.pattern->name;
  line.direction = c.sweep ? "sweep" : to_string(c.options.direction);
  line.transport = cell.transport;
  line.algorithm = cell.algorithm;
  line.hidden_share = line.utilisation = std::nan("");
  return line;
}

}  // namespace

std::vector<TrafficLine> traffic_lines_of(const RunContext& context, const Cell& cell,
                                          const Execution& execution,
                                          const IterationTraffic& traffic) {
  std::map<Dimension, std::vector<const BoundCommunication*>> steps;
  for (const BoundCommunication& step : execution.communications())
    steps[step.comm->dim()].push_back(&step);
  std::vector<TrafficLine> lines;
  for (const auto& [dim, figures] : traffic.by_dimension) {
    TrafficLine line = line_of(context, cell);
    line.dimension = to_string(dim);
    line.collective = operations_text(steps[dim]);
    line.operations = figures.count;
    line.bytes_per_operation = figures.bytes.max();
    line.needs = to_string(figures.needs);
    line.flow_source = traffic.flow_source;
    add_flows(line, traffic.ledger.part(dim, {}), context.options.mtu);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace weft
