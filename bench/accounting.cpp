#include "bench/accounting.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "bench/clock_sync.hpp"

namespace weft {
namespace {

struct OperationBytes {
  double logical = 0, bus = 0;
};

std::vector<double> run_time_bytes(const std::int32_t* counts, const RunTimeCounts& layout,
                                   int peers, DType dtype) {
  std::vector<double> bytes;
  for (int peer = 0; peer < peers; ++peer) {
    const std::int32_t* first = counts + peer * layout.per_peer;
    const Index rows = std::accumulate(first, first + layout.per_peer, Index{0});
    bytes.push_back(static_cast<double>(rows * layout.row_elements * size_of(dtype)));
  }
  return bytes;
}

std::vector<double> static_bytes(const std::vector<Index>& counts, DType dtype) {
  std::vector<double> bytes;
  for (Index count : counts) bytes.push_back(static_cast<double>(count * size_of(dtype)));
  return bytes;
}

OperationBytes all_to_all_bytes(const BoundCommunication& step) {
  const Operation& op = step.operation;
  const int n = step.comm->size();
  const auto sent = op.run_time ? run_time_bytes(op.run_time->send, *op.run_time, n, op.dtype)
                                : static_bytes(op.counts, op.dtype);
  const auto received = op.run_time ? run_time_bytes(op.run_time->recv, *op.run_time, n, op.dtype)
                                    : static_bytes(op.recv_counts, op.dtype);
  const auto me = static_cast<std::size_t>(step.comm->rank());
  const double out = std::accumulate(sent.begin(), sent.end(), 0.0);
  const double in = std::accumulate(received.begin(), received.end(), 0.0);
  return {out, std::max(out - sent[me], in - received[me])};
}

OperationBytes bytes_of(const BoundCommunication& step) {
  const Operation& op = step.operation;
  const double n = step.comm->size(), share = (n - 1) / n;
  const double in = static_cast<double>(op.in.bytes()), out = static_cast<double>(op.out.bytes());
  switch (op.kind) {
    case OperationKind::all_gather:
      return {out, out * share};
    case OperationKind::all_reduce:
      return {in, in * 2 * share};
    case OperationKind::reduce_scatter:
      return {in, in * share};
    case OperationKind::broadcast:
      return {out, n > 1 ? out : 0};
    case OperationKind::all_to_all_v:
      return all_to_all_bytes(step);
    case OperationKind::point_to_point:
      break;
  }
  double sent = 0;
  for (const PointToPoint& member : op.members) {
    if (member.send) sent += static_cast<double>(member.data.bytes());
  }
  return {sent, sent};
}

double most_sent(const FlowLedger& ledger) {
  std::map<Rank, double> sent;
  for (const Flow& flow : ledger.flows()) {
    if (flow.kind == MessageKind::payload) sent[flow.source] += static_cast<double>(flow.bytes);
  }
  double most = 0;
  for (const auto& [rank, bytes] : sent) most = std::max(most, bytes);
  return most;
}

}  // namespace

IterationTraffic account_iteration(Execution& execution, Session& session, Bootstrap& bootstrap) {
  IterationTraffic traffic;
  FlowRecorder& recorder = session.recorder();
  recorder.enable(true);
  recorder.clear();
  execution.iterate(Phase::serial);
  const FlowLedger mine = recorder.seal();
  recorder.enable(false);  // one iteration tells; timed ones need not be listed again
  for (const BoundCommunication& step : execution.communications()) {
    const OperationBytes bytes = bytes_of(step);
    traffic.logical += bytes.logical;
    traffic.bus += bytes.bus;
  }
  traffic.logical = bootstrap.max(traffic.logical);
  traffic.bus = bootstrap.max(traffic.bus);
  traffic.operations = static_cast<std::int64_t>(
      bootstrap.max(static_cast<double>(execution.communications().size())));
  traffic.recorded = !session.flow_source().empty();
  const auto packed = mine.serialize();
  for (const auto& bytes : bootstrap.all_gather(std::span(packed))) {
    traffic.ledger.merge(FlowLedger::deserialize(bytes.data(), bytes.size()));
  }
  traffic.wire_sent_max = most_sent(traffic.ledger);
  return traffic;
}

double measure_copy_limit(Bootstrap& bootstrap, Bytes last_level_cache) {
  const auto bytes =
      static_cast<std::size_t>(std::clamp<Bytes>(2 * last_level_cache, 16 << 20, 64 << 20));
  std::vector<char> from(bytes, 1), to(bytes, 2);
  std::vector<double> seconds;
  for (int i = 0; i < 7; ++i) {
    bootstrap.barrier();
    const double begin = monotonic_us();
    std::memcpy(to.data(), from.data(), bytes);
    from[static_cast<std::size_t>(i)] = to[bytes - 1];  // the copy has a reader
    seconds.push_back((bootstrap.max(monotonic_us() - begin)) * 1e-6);
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(bytes) / seconds[seconds.size() / 2] * 1e-9;
}

double measure_timer_cost() {
  constexpr int kReads = 20000;
  const double begin = monotonic_us();
  for (int i = 0; i < kReads; ++i) monotonic_us();
  return (monotonic_us() - begin) * 1e3 / kReads;
}

}  // namespace weft
