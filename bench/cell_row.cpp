#include "bench/cell_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

const Case& case_of(const RunContext& context, const Cell& cell) {
  return context.plan.cases[cell.case_index];
}

void identify_shape(Row& row, const RunContext& context, const Case& c) {
  const PatternOptions& options = c.options;
  row.set("dtype", to_string(options.dtype));
  row.set("options", context.plan.options_text(c));
  if (c.sweep) {
    row.set("direction", "sweep");
    row.set("size", c.sweep->bytes);
    return;
  }
  row.set("direction", to_string(options.direction));
  row.set("model", context.plan.model.name);
  row.set("seq", options.seq);
  row.set("micro_batch", options.micro_batch);
  row.set("micro_batches", options.micro_batches);
  row.set("layers", options.layers);
}

void identify_place(Row& row, const RunContext& context) {
  const Layout& layout = context.plan.layout;
  row.set("world", layout.world());
  for (const auto& [column, dim] : {std::pair{"tp", Dimension::tp},
                                    {"pp", Dimension::pp},
                                    {"dp", Dimension::dp},
                                    {"ep", Dimension::ep},
                                    {"cp", Dimension::cp}}) {
    row.set(column, layout.size(dim));
  }
  row.set("etp", layout.etp());
  row.set("order", layout.order());
  const auto hosts = distinct_real_hosts(context.bootstrap.hosts());
  row.set("hosts", static_cast<std::int64_t>(hosts.size()));
  row.set("host_names", fmt::format("{}", fmt::join(hosts, " ")));
  if (context.options.ranks_per_host > 0) row.set("virtual_hosts", context.bootstrap.host_count());
  row.set("cores_per_rank", static_cast<double>(context.cores) /
                                std::max<double>(1, static_cast<double>(context.bootstrap.size()) /
                                                        static_cast<double>(hosts.size())));
  row.set("threads_per_rank", context.threads_per_rank);
  row.set("binding", context.binding);
}

// Payload messages of all ranks as packets, message by message.
Packets packets_of_all(const FlowLedger& ledger, Bytes mtu) {
  Packets sum;
  std::vector<std::pair<Bytes, std::int64_t>>
      frames;  // median frame of a message, how many packets
  for (Bytes size : ledger.message_sizes()) {
    const Packets packets = packets_of(size, mtu);
    sum.count += packets.count;
    sum.wire_bytes += packets.wire_bytes;
    sum.largest = std::max(sum.largest, packets.largest);
    frames.emplace_back(packets.median, packets.count);
  }
  std::sort(frames.begin(), frames.end());
  std::int64_t seen = 0;
  for (const auto& [frame, count] : frames) {
    seen += count;
    if (seen * 2 >= sum.count) {
      sum.median = frame;
      break;
    }
  }
  return sum;
}

void add_flow_columns(Row& row, const RunContext& context, const IterationTraffic& traffic) {
  const FlowLedger& ledger = traffic.ledger;
  const std::vector<Bytes> sizes = ledger.message_sizes();
  const Bytes up = ledger.bytes(MessageKind::payload, Network::scale_up);
  const Bytes out = ledger.bytes(MessageKind::payload, Network::scale_out);
  row.set("bytes_wire", ledger.bytes(MessageKind::payload));
  row.set("bytes_scale_up", up);
  row.set("bytes_scale_out", out);
  row.set("network", out == 0 ? "scale_up" : up == 0 ? "scale_out" : "scale_up+scale_out");
  row.set("messages", static_cast<std::int64_t>(sizes.size()));
  row.set("flow_source", "recorded");
  const FlowStatistics statistics = statistics_of(ledger.flows());
  row.set("flows", statistics.flows);
  if (sizes.empty()) return;  // no traffic has no sizes and no entropy
  row.set("message_bytes_p50", sizes[(sizes.size() - 1) / 2]);
  const Packets packets = packets_of_all(ledger, context.options.mtu);
  row.set("packets", packets.count);
  row.set("packet_bytes_p50", packets.median);
  row.set("packet_bytes_max", packets.largest);
  row.set("flow_bytes_p50", statistics.flow_p50);
  row.set("flow_bytes_max", statistics.flow_max);
  row.set("fan_in_max", statistics.fan_in_max);
  row.set("entropy_bits", statistics.entropy_bits);
  row.set("effective_flows", statistics.effective_flows);
  row.set("evenness", statistics.evenness);
}

double gigabytes_per_second(double bytes, double us) {
  return bytes > 0 && us > 0 ? bytes / us * 1e-3 : std::nan("");
}

// Flows and messages of one dimension.
struct DimensionTraffic {
  std::vector<Flow> flows;
  std::set<Rank> senders;
};

std::map<Dimension, DimensionTraffic> by_dimension(const FlowLedger& ledger) {
  std::map<Dimension, DimensionTraffic> result;
  for (const Flow& flow : ledger.flows()) {
    if (flow.kind != MessageKind::payload) continue;
    result[flow.dim].flows.push_back(flow);
    result[flow.dim].senders.insert(flow.source);
  }
  return result;
}

std::string needs_of(const std::vector<const BoundCommunication*>& steps) {
  const bool reduces = std::ranges::any_of(steps, [](const BoundCommunication* step) {
    return step->operation.kind == OperationKind::all_reduce ||
           step->operation.kind == OperationKind::reduce_scatter;
  });
  // A signal must not overtake the data it announces; a sum must take each contribution once.
  return reduces ? "reliable, ordered, exactly once" : "reliable, ordered";
}

std::string packet_text(const std::vector<Bytes>& messages, Bytes mtu, std::int64_t& count) {
  std::map<Bytes, std::int64_t, std::greater<>> payloads;
  for (Bytes message : messages) {
    if (message / mtu > 0) payloads[mtu] += message / mtu;
    if (message % mtu > 0) payloads[message % mtu] += 1;
  }
  std::vector<std::string> parts;
  for (const auto& [size, packets] : payloads) {
    count += packets;
    if (parts.size() < 2) parts.push_back(fmt::format("{} x {}", size, packets));
  }
  if (payloads.size() > 2) parts.push_back(fmt::format("+{} sizes", payloads.size() - 2));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void add_flows(TrafficLine& line, const DimensionTraffic& traffic,
               const std::vector<Bytes>& messages, Bytes mtu) {
  const FlowStatistics statistics = statistics_of(traffic.flows);
  line.flows_per_sender =
      static_cast<double>(statistics.flows) / static_cast<double>(traffic.senders.size());
  line.flow_p50 = statistics.flow_p50;
  line.flow_max = statistics.flow_max;
  line.fan_in = statistics.fan_in_max;
  // Queue pairs share a pair's bytes evenly, so q of them add log2 q bits to the entropy.
  const int queue_pairs[] = {1, 4, 16};
  for (int i = 0; i < 3; ++i) line.effective_flows[i] = statistics.effective_flows * queue_pairs[i];
  line.packet_sizes = packet_text(messages, mtu, line.packets);
  const bool out = std::ranges::any_of(
      traffic.flows, [](const Flow& f) { return f.network == Network::scale_out; });
  const bool up = std::ranges::any_of(traffic.flows,
                                      [](const Flow& f) { return f.network == Network::scale_up; });
  line.network = out && up ? "both" : out ? "scale_out" : "scale_up";
}

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

Bytes largest_message(const std::vector<const BoundCommunication*>& steps) {
  Bytes most = 0;
  for (const BoundCommunication* step : steps) {
    const Operation& op = step->operation;
    Bytes bytes = op.kind == OperationKind::all_gather ? op.out.bytes() : op.in.bytes();
    for (const PointToPoint& member : op.members) bytes = std::max(bytes, member.data.bytes());
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

Row identify(const RunContext& context, const Cell& cell) {
  Row row;
  row.set("schema", kSchema);
  row.set("launch_id", context.launch_id);
  row.set("cell_id", cell.id);
  row.set("pattern", context.plan.pattern->name);
  row.set("dimension", to_string(context.plan.pattern->dim));
  row.set("phase", to_string(cell.phase));
  row.set("transport", cell.transport);
  row.set("algorithm", cell.algorithm);
  row.set("space", to_string(context.backend.space()));
  row.set("cache", "hot");
  identify_shape(row, context, case_of(context, cell));
  identify_place(row, context);
  return row;
}

void add_times(Row& row, const Measurement& measurement) {
  const Summary& s = measurement.summary;
  row.set("sync", measurement.sync);
  row.set("n", s.n);
  row.set("late", measurement.late);
  row.set("stop_reason", measurement.stop_reason);
  row.set("t_first_us", measurement.first_us);
  if (s.n == 0) return;
  for (const auto& [column, value] : {std::pair{"t_min_us", s.min},
                                      {"t_p50_us", s.p50},
                                      {"t_p95_us", s.p95},
                                      {"t_p99_us", s.p99},
                                      {"t_max_us", s.max},
                                      {"t_mean_us", s.mean},
                                      {"t_stddev_us", s.stddev},
                                      {"t_ci_low_us", s.ci_low},
                                      {"t_ci_high_us", s.ci_high}}) {
    row.set(column, value);
  }
}

void add_traffic(Row& row, const RunContext& context, const IterationTraffic& traffic,
                 double p50_us) {
  row.set("bytes_logical", static_cast<std::int64_t>(traffic.logical));
  row.set("operations", traffic.operations);
  if (traffic.recorded) add_flow_columns(row, context, traffic);
  if (row.get("phase") != "comm") return;
  row.set("algbw_GBps", gigabytes_per_second(traffic.logical, p50_us));
  row.set("busbw_GBps", gigabytes_per_second(traffic.bus, p50_us));
  if (traffic.recorded) row.set("wire_GBps", gigabytes_per_second(traffic.wire_sent_max, p50_us));
  row.set("copy_limit_GBps", context.copy_limit_GBps);
}

void add_gemm(Row& row, const GemmTime& gemm) {
  if (gemm.gemm_us <= 0) return;
  row.set("t_gemm_us", gemm.gemm_us);
  row.set("gemm_share", gemm.gemm_us / row.number("t_p50_us"));
  row.set("gemm_gflops", gemm.flops / gemm.gemm_us * 1e-3);
}

std::vector<TrafficLine> traffic_lines_of(const RunContext& context, const Cell& cell,
                                          const Execution& execution,
                                          const IterationTraffic& traffic) {
  std::map<Dimension, std::vector<const BoundCommunication*>> steps;
  for (const BoundCommunication& step : execution.communications())
    steps[step.comm->dim()].push_back(&step);
  const auto flows = by_dimension(traffic.ledger);
  std::vector<TrafficLine> lines;
  for (const auto& [dim, of_dim] : steps) {
    TrafficLine line;
    line.pattern = context.plan.pattern->name;
    line.dimension = to_string(dim);
    line.direction = case_of(context, cell).sweep
                         ? "sweep"
                         : to_string(case_of(context, cell).options.direction);
    line.transport = cell.transport;
    line.algorithm = cell.algorithm;
    line.collective = operations_text(of_dim);
    line.operations = static_cast<std::int64_t>(of_dim.size());
    line.bytes_per_operation = largest_message(of_dim);
    line.who = fmt::format("{} ranks, groups of {}", context.plan.layout.world(),
                           of_dim.front()->comm->size());
    line.hidden_share = line.utilisation = std::nan("");
    line.needs = needs_of(of_dim);
    const auto found = flows.find(dim);
    if (found != flows.end())
      add_flows(line, found->second, traffic.ledger.message_sizes(dim), context.options.mtu);
    if (traffic.recorded) line.flow_source = "recorded";
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace weft
