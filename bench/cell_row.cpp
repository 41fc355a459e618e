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
  identify_hosts(row, {context.bootstrap, context.options.ranks_per_host > 0, context.cores,
                       context.binding, context.binding_note});
  for (const auto& [column, dim] : {std::pair{"tp", Dimension::tp},
                                    {"pp", Dimension::pp},
                                    {"dp", Dimension::dp},
                                    {"ep", Dimension::ep},
                                    {"cp", Dimension::cp}}) {
    row.set(column, layout.size(dim));
  }
  row.set("etp", layout.etp());
  row.set("order", layout.order());
  row.set("threads_per_rank", context.threads_per_rank);
  row.set("stream_cores", context.streams_share_cores ? "shared" : "own");
}

}  // namespace

double gigabytes_per_second(double bytes, double us) {
  return bytes > 0 && us > 0 ? bytes / us * 1e-3 : std::nan("");
}

void identify_hosts(Row& row, const RunPlace& place) {
  row.set("world", place.bootstrap.size());
  const auto hosts = distinct_real_hosts(place.bootstrap.hosts());
  row.set("hosts", static_cast<std::int64_t>(hosts.size()));
  row.set("host_names", fmt::format("{}", fmt::join(hosts, " ")));
  if (place.virtual_hosts) row.set("virtual_hosts", place.bootstrap.host_count());
  const double ranks_per_host =
      static_cast<double>(place.bootstrap.size()) / static_cast<double>(hosts.size());
  row.set("cores_per_rank", place.cores / std::max(1.0, ranks_per_host));
  row.set("binding", place.binding);
  row.set("binding_note", place.binding_note);
}

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
  row.set("cache", context.options.hot ? "hot" : "rotated");
  identify_shape(row, context, case_of(context, cell));
  identify_place(row, context);
  return row;
}

void add_noise(Row& row, const Noise& noise) {
  row.set("noise", noise.text());
  row.set("other_load", noise.other_load);
  row.set("steal", noise.steal);
  row.set("throttled_us", noise.throttled_us);
}

void add_statistics(Row& row, const Summary& s) {
  row.set("n", s.n);
  if (s.n == 0) return;
  for (const auto& [column, value] : {std::pair{"t_min_us", s.min},
                                      {"t_p50_us", s.p50},
                                      {"t_p95_us", s.p95},
                                      {"t_p99_us", s.p99},
                                      {"t_p999_us", s.p999},
                                      {"t_max_us", s.max},
                                      {"t_mean_us", s.mean},
                                      {"t_stddev_us", s.stddev},
                                      {"t_ci_low_us", s.ci_low},
                                      {"t_ci_high_us", s.ci_high}}) {
    row.set(column, value);
  }
}

void add_times(Row& row, const Measurement& measurement) {
  row.set("sync", measurement.sync);
  row.set("clock_residual_us", measurement.clock_residual_us);
  row.set("start_skew_us", measurement.start_skew_us);
  add_noise(row, measurement.noise);
  row.set("attempts", measurement.attempts);
  row.set("late", measurement.late);
  row.set("stop_reason", measurement.stop_reason);
  row.set("t_first_us", measurement.first_us);
  add_statistics(row, measurement.summary);
}

void add_overlap(Row& row, const OverlapFigures& figures) {
  row.set("exposed_us", figures.exposed_us);
  row.set("hidden_share", figures.hidden_share);
  row.set("bubble_us", figures.bubble_us);
  row.set("compute_slowdown", figures.compute_slowdown);
}

void add_rates(Row& row, const RunContext& context, const IterationTraffic& traffic,
               double p50_us) {
  row.set("bytes_logical", static_cast<std::int64_t>(traffic.logical));
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

}  // namespace weft
