#include "bench/traffic_columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/concurrency.hpp"
#include "bench/ecmp.hpp"
#include "bench/packets.hpp"

namespace weft {
namespace {

constexpr std::size_t kShownFrameSizes = 16;
constexpr std::array<std::string_view, 3> kWindowNames = {"100us", "1ms", "10ms"};

void add_sizes(Row& row, std::string_view prefix, const SizeHistogram& sizes) {
  if (sizes.empty()) return;
  const auto set = [&](std::string_view what, Bytes value) {
    row.set(fmt::format("{}_{}", prefix, what), value);
  };
  set("min", sizes.min());
  set("p50", sizes.percentile(0.5));
  set("p95", sizes.percentile(0.95));
  set("max", sizes.max());
}

std::string network_name(Bytes up, Bytes out) {
  if (up > 0 && out > 0) return "scale_up+scale_out";
  return up > 0 ? "scale_up" : out > 0 ? "scale_out" : "";
}

// "wire" and what is said of networks' bytes are of bytes that were seen to be posted.
void add_bytes(Row& row, const TrafficPart& part) {
  const Bytes up = part.ledger.bytes(MessageKind::payload, Network::scale_up);
  const Bytes out = part.ledger.bytes(MessageKind::payload, Network::scale_out);
  row.set("network", network_name(up, out));
  if (!part.recorded) return;
  row.set("bytes_wire", part.ledger.bytes(MessageKind::payload));
  row.set("bytes_scale_up", up);
  row.set("bytes_scale_out", out);
}

void add_packets(Row& row, const SizeHistogram& messages, Bytes mtu) {
  const PacketHistogram packets = packets_of(messages, mtu);
  row.set("packets", packets.data.count());
  row.set("ack_packets", packets.acks.count());
  add_sizes(row, "packet_bytes", packets.data);
  row.set("packet_histogram", histogram_text(packets, kShownFrameSizes));
}

void add_flows(Row& row, const FlowStatistics& flows, Bytes elephant) {
  row.set("flows", flows.flows);
  row.set("elephants", flows.sizes.count_from(elephant));
  row.set("fan_in_max", flows.fan_in_max);
  if (flows.bytes == 0) return;  // no traffic has no shares and no entropy
  add_sizes(row, "flow_bytes", flows.sizes);
  row.set("elephant_share",
          static_cast<double>(flows.sizes.total_from(elephant)) / static_cast<double>(flows.bytes));
  row.set("entropy_bits", flows.entropy_bits);
  row.set("effective_flows", flows.effective_flows);
  row.set("evenness", flows.evenness);
}

// Between hosts, the flows between hosts; else each rank is taken for a host of its own.
void add_paths(Row& row, const TrafficPart& part, const TrafficSetting& setting) {
  const FlowLedger& ledger = part.ledger;
  std::vector<Flow> flows = ledger.part({}, Network::scale_out).flows();
  std::vector<int> ends = setting.hosts;
  if (network_flows(flows).empty()) {
    flows = ledger.flows();
    std::iota(ends.begin(), ends.end(), 0);
  }
  const auto per_end = host_entropy_bits(flows, ends);
  if (per_end.empty()) return;
  row.set("host_entropy_bits_min", std::ranges::min_element(per_end, {}, [](const auto& item) {
                                     return item.second;
                                   })->second);
  const Options& options = setting.options;
  std::vector<FiveTuple> tuples = five_tuples(flows, part.queue_pairs);
  if (tuples.empty()) tuples = five_tuples(flows, ends, options.queue_pairs);
  const PathSpread spread = spread_over(tuples, options.ecmp_hash, options.paths);
  row.set("paths", options.paths);
  row.set("ecmp_hash", to_string(options.ecmp_hash));
  row.set("qps", options.queue_pairs);
  row.set("path_max_mean", spread.max_mean);
  row.set("path_entropy", spread.entropy);
}

void add_frequency(Row& row, const Timeline& timeline, const std::vector<int>& hosts) {
  if (!timeline.timed) return;
  const Burstiness bursts = burstiness_of(timeline, hosts);
  row.set("burst_source", "posted");
  row.set("msgs_per_s", bursts.msgs_per_s);
  row.set("gap_p50_us", bursts.gap_p50_us);
  row.set("gap_p99_us", bursts.gap_p99_us);
  for (std::size_t i = kWindowNames.size(); i-- > 0;) {
    row.set(fmt::format("duty_cycle_{}", kWindowNames[i]), bursts.duty_cycle[i]);
    row.set(fmt::format("peak_to_mean_{}", kWindowNames[i]), bursts.peak_to_mean[i]);
    if (std::isnan(bursts.duty_cycle[i])) continue;
    row.set("duty_cycle", bursts.duty_cycle[i]);  // the smallest that fits has the last word
    row.set("peak_to_mean", bursts.peak_to_mean[i]);
  }
  const Concurrency concurrency = concurrency_of(timeline);
  row.set("flows_concurrent_max", concurrency.flows_max);
  row.set("fan_in_concurrent_max", concurrency.fan_in_max);
}

void add_link_use(Row& row, const TrafficPart& part, const TrafficSetting& setting) {
  const LinkBytes bytes = busiest_links(part.ledger, setting.hosts, setting.options.mtu);
  const LinkUse use = link_use(bytes, setting.time_us, setting.rates);
  row.set("link_util", use.busiest);
  row.set("link_util_scale_up", use.scale_up);
  row.set("link_util_scale_out", use.scale_out);
  if (std::isnan(use.busiest)) return;
  row.set("link_rate_source",
          part.recorded ? use.rate_source : use.rate_source + "; bytes predicted");
}

void add_needs(Row& row, const ServiceNeeds& needs) {
  row.set("needs_reliable", needs.reliable);
  row.set("needs_ordered", needs.ordered);
  row.set("needs_lossless", needs.lossless);
}

}  // namespace

TrafficPart whole_of(const IterationTraffic& traffic, const Timeline& timeline) {
  return {traffic.ledger,      traffic.queue_pairs,
          traffic.operations,  traffic.operation_bytes(),
          traffic.needs(),     timeline,
          traffic.flow_source, traffic.recorded};
}

TrafficPart part_of(const IterationTraffic& traffic, const Timeline& timeline, Dimension dim,
                    Network network) {
  TrafficPart part = whole_of(traffic, timeline.part(dim, network));
  part.ledger = traffic.ledger.part(dim, network);
  const auto found = traffic.by_dimension.find(dim);
  const OperationFigures figures =
      found == traffic.by_dimension.end() ? OperationFigures{} : found->second;
  part.operations = figures.count;
  part.operation_bytes = figures.bytes;
  part.needs = figures.needs;
  return part;
}

void add_traffic_columns(Row& row, const TrafficPart& part, const TrafficSetting& setting) {
  row.set("operations", part.operations);
  add_sizes(row, "operation_bytes", part.operation_bytes);
  add_needs(row, part.needs);
  if (part.flow_source.empty()) return;
  row.set("flow_source", part.flow_source);
  add_bytes(row, part);
  const SizeHistogram messages = part.ledger.messages();
  row.set("messages", messages.count());
  add_sizes(row, "message_bytes", messages);
  add_packets(row, messages, setting.options.mtu);
  add_flows(row, statistics_of(part.ledger.flows()), setting.options.elephant);
  add_paths(row, part, setting);
  add_frequency(row, part.timeline, setting.hosts);
  add_link_use(row, part, setting);
}

}  // namespace weft
