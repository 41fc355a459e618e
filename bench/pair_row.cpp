#include "bench/pair_row.hpp"

#include <fmt/format.h>

#include "bench/cell_row.hpp"

namespace weft {
namespace {

int messages_of(const PairCell& cell) {
  return cell.test == PairTest::latency ? 1 : cell.shape.window;
}

void add_pair_rates(Row& row, const PairRowContext& context, const PairCell& cell,
                    const PairResult& result) {
  const Bytes one_way = messages_of(cell) * cell.shape.size;
  const Bytes all = cell.test == PairTest::bidirectional ? 2 * one_way : one_way;
  row.set("bytes_logical", all);
  if (cell.test == PairTest::latency) return;
  const double us = result.summary.p50;
  row.set("algbw_GBps", gigabytes_per_second(static_cast<double>(all), us));
  row.set("busbw_GBps", gigabytes_per_second(static_cast<double>(one_way), us));
  row.set("wire_GBps", gigabytes_per_second(static_cast<double>(result.posted), us));
  row.set("copy_limit_GBps", context.copy_limit_GBps);
}

}  // namespace

std::string PairCell::id(int world) const {
  return fmt::format("pairs/n{}/{}-{}/{}B/{}{}/{}.{}{}", world, from, to, shape.size,
                     to_string(test),
                     test == PairTest::latency ? "" : fmt::format(".w{}", shape.window),
                     transport.name, transport.algorithms.front(), shape.hot ? "/hot" : "");
}

Row pair_row(const PairRowContext& context, const PairCell& cell) {
  Row row;
  row.set("schema", kSchema);
  row.set("launch_id", context.launch_id);
  row.set("cell_id", cell.id(context.bootstrap.size()));
  row.set("pattern", "pairs");
  row.set("phase", to_string(Phase::comm));
  row.set("transport", cell.transport.name);
  row.set("algorithm", cell.transport.algorithms.front());
  row.set("space", to_string(MemorySpace::host));
  row.set("size", cell.shape.size);
  row.set("options", cell.shape.hot ? "hot" : "");
  row.set("cache", cell.shape.hot ? "hot" : "rotated");
  if (cell.round > 1) row.set("repetition", cell.round - 1);
  row.set("peer_from", cell.from);
  row.set("peer_to", cell.to);
  row.set("round", cell.round);
  row.set("test", to_string(cell.test));
  row.set("window", messages_of(cell));
  identify_hosts(row, {context.bootstrap, context.options.common.ranks_per_host > 0,
                       context.cpus.cores, context.cpus.binding, context.cpus.note});
  row.set("rotation_bytes", 2 * cell.shape.sets * PairBuffers::set_bytes(cell.shape));
  return row;
}

void add_result(Row& row, const PairRowContext& context, const PairCell& cell,
                const PairResult& result, const PairAttempt& attempt) {
  row.set("verified", result.why.empty());
  if (!result.why.empty()) {
    row.set("skip_reason", result.why);  // no performance value beside a wrong result
    return;
  }
  add_noise(row, attempt.noise);
  row.set("attempts", attempt.attempts);
  row.set("stop_reason", result.stop_reason);
  row.set("t_first_us", result.first_us);
  add_statistics(row, result.summary);
  add_pair_rates(row, context, cell, result);
  PortRecord ports = attempt.ports;
  ports.iterations = result.iterations;
  add_port_columns(row, ports, nullptr, context.options.common.mtu);
  if (attempt.pairs < 2 || ports_used(cell.transport.name) == PortsUsed::none) return;
  const std::string_view note = row.get("counter_note");
  row.set("counter_note", fmt::format("{}{}counted of {} pairs at the same time", note,
                                      note.empty() ? "" : "; ", attempt.pairs));
}

}  // namespace weft
