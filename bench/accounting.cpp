#include "bench/accounting.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

#include "bench/clock_sync.hpp"
#include "bench/prediction.hpp"

namespace weft {
namespace {

struct OperationBytes {
  double logical = 0, bus = 0;
};

OperationBytes all_to_all_bytes(const BoundCommunication& step) {
  const auto sent = all_to_all_sent(step), received = all_to_all_received(step);
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

/// What a rank tells the others of one of its steps.
struct StepRecord {
  Dimension dim = Dimension::none;
  double logical = 0;
  int needs = 0;
};

/// Native forms of a wire have no schedule: they move each block straight from where it is to where
/// it belongs, as the direct one does.
const Algorithm& known_algorithm(std::string_view name, bool recorded) {
  const auto& all = algorithms();
  const auto found = std::ranges::find(all, name, &Algorithm::name);
  if (found != all.end()) return *found;
  return find_algorithm(recorded ? "direct" : kPredictedAlgorithm);
}

/// Looks at this rank's steps: their bytes, needs and predicted messages.
std::vector<StepRecord> look_at_steps(const Execution& execution, Bootstrap& bootstrap,
                                      const Algorithm& algorithm, IterationTraffic& traffic,
                                      std::vector<Message>& predicted) {
  const std::vector<int> hosts = bootstrap.host_indices();
  std::vector<StepRecord> records;
  for (const BoundCommunication& step : execution.communications()) {
    const OperationBytes bytes = bytes_of(step);
    traffic.logical += bytes.logical;
    traffic.bus += bytes.bus;
    PredictedStep plan = predict(step, algorithm, hosts);
    plan.demand.signalled = traffic.recorded;  // wires that run our schedules are one-sided
    records.push_back({step.comm->dim(), bytes.logical, bits_of(needs_of(plan.demand))});
    std::ranges::move(plan.messages, std::back_inserter(predicted));
  }
  return records;
}

void join_steps(const std::vector<StepRecord>& mine, Bootstrap& bootstrap,
                IterationTraffic& traffic) {
  for (const auto& bytes : bootstrap.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<StepRecord> theirs(bytes.size() / sizeof(StepRecord));
    if (!bytes.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
    std::map<Dimension, std::int64_t> counts;
    for (const StepRecord& step : theirs) {
      OperationFigures& figures = traffic.by_dimension[step.dim];
      if (step.logical > 0) figures.bytes.add(static_cast<Bytes>(step.logical));
      figures.needs = figures.needs | needs_from(step.needs);
      figures.count = std::max(figures.count, ++counts[step.dim]);
    }
    traffic.operations = std::max(traffic.operations, static_cast<std::int64_t>(theirs.size()));
  }
}

/// A pair that is sent several messages in an iteration tells them apart by their order.
void need_order_of_repeats(IterationTraffic& traffic) {
  for (const Flow& flow : traffic.ledger.flows()) {
    if (flow.kind == MessageKind::payload && flow.messages > 1)
      traffic.by_dimension[flow.dim].needs.ordered = true;
  }
}

FlowLedger gather_ledgers(const FlowLedger& mine, Bootstrap& bootstrap) {
  FlowLedger all;
  const auto packed = mine.serialize();
  for (const auto& bytes : bootstrap.all_gather(std::span(packed))) {
    all.merge(FlowLedger::deserialize(bytes.data(), bytes.size()));
  }
  return all;
}

}  // namespace

ServiceNeeds IterationTraffic::needs() const {
  ServiceNeeds all;
  for (const auto& [dim, figures] : by_dimension) all = all | figures.needs;
  return all;
}

SizeHistogram IterationTraffic::operation_bytes() const {
  SizeHistogram all;
  for (const auto& [dim, figures] : by_dimension) all.merge(figures.bytes);
  return all;
}

IterationTraffic account_iteration(Execution& execution, Session& session, Bootstrap& bootstrap,
                                   std::string_view algorithm) {
  IterationTraffic traffic;
  FlowRecorder& recorder = session.recorder();
  recorder.enable(true);
  recorder.clear();
  execution.iterate(Phase::serial);
  const FlowLedger posted = recorder.seal();
  recorder.enable(false);  // one iteration tells; timed ones need not be listed again
  recorder.clear();
  traffic.recorded = !session.flow_source().empty();
  traffic.flow_source = traffic.recorded ? session.flow_source() : "predicted";
  std::vector<Message> predicted;
  const auto steps = look_at_steps(
      execution, bootstrap, known_algorithm(algorithm, traffic.recorded), traffic, predicted);
  join_steps(steps, bootstrap, traffic);
  traffic.logical = bootstrap.max(traffic.logical);
  traffic.bus = bootstrap.max(traffic.bus);
  traffic.ledger =
      gather_ledgers(traffic.recorded ? posted : FlowLedger(std::move(predicted)), bootstrap);
  if (traffic.recorded) traffic.wire_sent_max = most_sent(traffic.ledger);
  traffic.queue_pairs = gather_queue_pairs(session.queue_pairs(), bootstrap);
  need_order_of_repeats(traffic);
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
