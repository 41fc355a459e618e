#include "bench/row.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace weft {
namespace {

// Groups as in results/SCHEMA.md.
constexpr std::string_view kColumns[] = {
    // which cell
    "schema", "launch_id", "cell_id", "pattern", "dimension", "direction", "phase", "transport",
    "algorithm", "model", "dtype", "space", "size", "seq", "micro_batch", "micro_batches", "layers",
    "options", "cache", "repetition",
    // which pair
    "peer_from", "peer_to", "round", "test", "window",
    // where
    "world", "tp", "pp", "dp", "ep", "cp", "etp", "order", "hosts", "virtual_hosts", "host_names",
    "cores_per_rank", "threads_per_rank", "binding", "binding_note", "stream_cores", "sync",
    "clock_residual_us", "start_skew_us", "noise", "other_load", "steal", "throttled_us",
    "attempts",
    // bytes
    "bytes_logical", "bytes_wire", "bytes_scale_up", "bytes_scale_out", "mem_peak_bytes",
    "rotation_bytes",
    // time
    "n", "late", "stop_reason", "t_first_us", "t_min_us", "t_p50_us", "t_p95_us", "t_p99_us",
    "t_p999_us", "t_max_us", "t_mean_us", "t_stddev_us", "t_ci_low_us", "t_ci_high_us", "t_gemm_us",
    "gemm_share",
    // rates
    "algbw_GBps", "busbw_GBps", "wire_GBps", "copy_limit_GBps", "link_util", "link_util_scale_up",
    "link_util_scale_out", "link_rate_source", "gemm_gflops",
    // traffic
    "network", "operations", "operation_bytes_min", "operation_bytes_p50", "operation_bytes_p95",
    "operation_bytes_max", "messages", "message_bytes_min", "message_bytes_p50",
    "message_bytes_p95", "message_bytes_max", "packets", "packet_bytes_min", "packet_bytes_p50",
    "packet_bytes_p95", "packet_bytes_max", "packet_histogram", "ack_packets", "flows",
    "flow_bytes_min", "flow_bytes_p50", "flow_bytes_p95", "flow_bytes_max", "elephants",
    "elephant_share", "flow_source", "fan_in_max", "fan_in_concurrent_max", "flows_concurrent_max",
    "entropy_bits", "effective_flows", "evenness", "host_entropy_bits_min", "paths", "ecmp_hash",
    "qps", "path_max_mean", "path_entropy",
    // frequency: depends on this machine's speed
    "msgs_per_s", "gap_p50_us", "gap_p99_us", "duty_cycle", "duty_cycle_100us", "duty_cycle_1ms",
    "duty_cycle_10ms", "peak_to_mean", "peak_to_mean_100us", "peak_to_mean_1ms",
    "peak_to_mean_10ms", "burst_source",
    // services
    "needs_reliable", "needs_ordered", "needs_lossless",
    // what ports counted: of a whole cell only
    "retransmits", "out_of_sequence", "rnr_naks", "duplicates", "ecn_marked", "cnp", "discards",
    "pauses", "port_tx_bytes", "port_rx_bytes", "port_tx_packets", "port_rx_packets",
    "port_iterations", "port_tx_expected_bytes", "port_tx_expected_packets", "port_difference",
    "port_source", "counter_note",
    // overlap
    "exposed_us", "hidden_share", "bubble_us", "compute_slowdown",
    // verdict
    "verified", "skip_reason"};

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPlainBelow = 1e15;  // larger numbers are written with an exponent

double parse(std::string_view text) {
  double value = kNaN;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size() ? value : kNaN;
}

/// Six significant digits, without an exponent where a reader may stumble over it.
std::string number_text(double value) {
  if (value == 0) return "0";  // also -0
  const double rounded = parse(fmt::format("{:.6g}", value));
  if (std::abs(rounded) >= 1 && std::abs(rounded) < kPlainBelow && rounded == std::floor(rounded)) {
    return fmt::format("{}", static_cast<std::int64_t>(rounded));
  }
  return fmt::format("{}", rounded);
}

}  // namespace

const std::vector<std::string_view>& columns() {
  static const std::vector<std::string_view> all(std::begin(kColumns), std::end(kColumns));
  return all;
}

const std::vector<std::string_view>& traffic_file_columns() {
  static const std::vector<std::string_view> some = [] {
    std::vector<std::string_view> result{"schema",    "launch_id",       "cell_id",   "pattern",
                                         "dimension", "network",         "direction", "phase",
                                         "transport", "algorithm",       "world",     "bytes_wire",
                                         "link_util", "link_rate_source"};
    const auto first = std::ranges::find(kColumns, std::string_view("operations"));
    const auto last = std::ranges::find(kColumns, std::string_view("retransmits"));
    result.insert(result.end(), first, last);
    return result;
  }();
  return some;
}

void Row::put(std::string_view column, std::string text, bool number) {
  if (std::find(columns().begin(), columns().end(), column) == columns().end()) {
    throw std::logic_error(fmt::format("column '{}' is not in the schema {}", column, kSchema));
  }
  if (text.empty()) {
    if (const auto found = values_.find(column); found != values_.end()) values_.erase(found);
    return;
  }
  values_.insert_or_assign(std::string(column), Value{std::move(text), number});
}

void Row::set(std::string_view column, std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\0'; }, ' ');
  put(column, std::move(line), false);
}

void Row::set(std::string_view column, double value) {
  put(column, std::isfinite(value) ? number_text(value) : std::string(), true);
}

void Row::set(std::string_view column, std::int64_t value) {
  put(column, fmt::format("{}", value), true);
}

void Row::set(std::string_view column, bool value) { put(column, value ? "true" : "false", true); }

std::string_view Row::get(std::string_view column) const {
  const auto found = values_.find(column);
  return found == values_.end() ? std::string_view() : std::string_view(found->second.text);
}

double Row::number(std::string_view column) const { return parse(get(column)); }

bool Row::numeric(std::string_view column) const {
  const auto found = values_.find(column);
  return found != values_.end() && found->second.number;
}

}  // namespace weft
