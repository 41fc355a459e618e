#include "bench/observe.hpp"

#include <cmath>

#include "bench/cell_row.hpp"
#include "bench/trace_writer.hpp"
#include "bench/traffic_columns.hpp"

namespace weft {
namespace {

std::vector<InstrumentedIteration> instrument(const Observed& o, double p50_us) {
  const IterationTraffic& traffic = o.bound.traffic();
  const std::int64_t messages = traffic.recorded ? traffic.ledger.messages().count() : 0;
  const bool timed = traffic.recorded && o.cell.phase != Phase::compute;
  if (!timed && o.context.options.trace.empty()) return {};
  return instrument(
      o.bound.execution(), o.bound.session(), o.context.bootstrap, o.start, o.cell.phase,
      iterations_to_instrument(p50_us, messages),
      [&](double local_us) { return o.clocks.to_reference(local_us); }, o.progress);
}

void write_trace(const Observed& o, const std::vector<InstrumentedIteration>& iterations) {
  if (o.context.options.trace.empty()) return;
  const auto steps = gather_steps(o.bound.execution(), o.context.bootstrap);
  if (!o.context.writer) return;
  o.context.writer->write_trace({o.cell.id, o.context.bootstrap.hosts(), steps,
                                 std::span(iterations).first(iterations_to_trace(iterations))});
}

std::vector<Row> parts_of(const Row& identity, const IterationTraffic& traffic,
                          const Timeline& timeline, const TrafficSetting& setting) {
  std::vector<Row> parts;
  for (const auto& [dim, network] : traffic.ledger.parts()) {
    Row& part = parts.emplace_back(identity);
    add_traffic_columns(part, part_of(traffic, timeline, dim, network), setting);
    part.set("dimension", to_string(dim));
    part.set("network", to_string(network));
  }
  return parts;
}

void write_files(const Observed& o, const std::vector<Row>& parts) {
  if (!o.context.writer) return;
  const IterationTraffic& traffic = o.bound.traffic();
  for (const Row& part : parts) o.context.writer->write_traffic(part);
  o.context.writer->write_flows(o.cell.id, {traffic.ledger.flows(), o.context.bootstrap.hosts(),
                                            traffic.flow_source, traffic.queue_pairs});
}

}  // namespace

std::vector<Row> observe(Row& row, const Observed& o, double p50_us) {
  const std::vector<InstrumentedIteration> iterations = instrument(o, p50_us);
  write_trace(o, iterations);
  if (o.cell.phase == Phase::compute) return {};
  const IterationTraffic& traffic = o.bound.traffic();
  const Timeline timeline = timeline_of(iterations);
  TrafficSetting setting{o.context.options, o.context.bootstrap.host_indices(), o.context.links,
                         p50_us};
  setting.rates.copy_GBps = o.context.copy_limit_GBps;
  const std::vector<Row> parts = parts_of(row, traffic, timeline, setting);
  add_traffic_columns(row, whole_of(traffic, timeline), setting);
  add_rates(row, o.context, traffic, p50_us);
  write_files(o, parts);
  return parts;
}

}  // namespace weft
