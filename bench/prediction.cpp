#include "bench/prediction.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace weft {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

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

/// Collects what one rank posts in a step.
class Posting {
 public:
  Posting(const BoundCommunication& step, const std::vector<int>& hosts)
      : comm_(*step.comm), hosts_(hosts) {}

  /// `peer`: group index.
  void post(int peer, Bytes bytes) {
    if (bytes <= 0) return;
    const Rank me = comm_.ranks()[at(comm_.rank())], to = comm_.ranks()[at(peer)];
    const bool near = hosts_.at(at(me)) == hosts_.at(at(to));
    result_.messages.push_back({.source = me,
                                .destination = to,
                                .bytes = bytes,
                                .dim = comm_.dim(),
                                .network = near ? Network::scale_up : Network::scale_out});
    ++per_peer_[peer];
  }
  void await(int senders) { result_.demand.fan_in = std::max(result_.demand.fan_in, senders); }
  StepDemand& demand() { return result_.demand; }

  PredictedStep take() {
    result_.demand.sends = !result_.messages.empty();
    for (const auto& [peer, messages] : per_peer_) {
      result_.demand.messages_per_pair = std::max(result_.demand.messages_per_pair, messages);
    }
    return std::move(result_);
  }

 private:
  const Communicator& comm_;
  const std::vector<int>& hosts_;
  std::map<int, int> per_peer_;
  PredictedStep result_;
};

void post_points(const Operation& op, Posting& posting) {
  std::map<int, int> senders;
  for (const PointToPoint& member : op.members) {
    if (member.send) {
      posting.post(member.peer, member.data.bytes());
    } else if (member.data.bytes() > 0) {
      ++senders[member.peer];
    }
  }
  posting.demand().rounds = 1;
  posting.await(static_cast<int>(senders.size()));
}

void post_all_to_all(const BoundCommunication& step, Posting& posting) {
  const std::vector<double> sent = all_to_all_sent(step), received = all_to_all_received(step);
  const int n = step.comm->size(), me = step.comm->rank();
  int senders = 0;
  for (int i = 1; i < n; ++i) {
    const int peer = (me + i) % n;
    posting.post(peer, static_cast<Bytes>(sent[at(peer)]));
    senders += received[at(peer)] > 0;
  }
  posting.demand().rounds = 1;
  posting.await(senders);
}

ScheduleInput input_of(const BoundCommunication& step, const std::vector<int>& hosts) {
  const Operation& op = step.operation;
  const bool whole = op.kind == OperationKind::all_reduce || op.kind == OperationKind::broadcast;
  ScheduleInput input{.kind = op.kind,
                      .size = step.comm->size(),
                      .counts = whole ? std::vector<Index>{op.out.elements()} : op.counts,
                      .matrix = {},
                      .root = op.root,
                      .hosts = {}};
  for (Rank rank : step.comm->ranks()) input.hosts.push_back(hosts.at(at(rank)));
  return input;
}

void post_schedule(const Schedule& schedule, DType dtype, Posting& posting) {
  for (int r = 0; r < schedule.rounds(); ++r) {
    const Round round = schedule.round(r);
    for (const Transfer& transfer : round.sends) {
      posting.post(transfer.peer, transfer.elements * size_of(dtype));
    }
    posting.await(static_cast<int>(round.receives.size()));
  }
  posting.demand().rounds = schedule.rounds();
}

}  // namespace

std::vector<double> all_to_all_sent(const BoundCommunication& step) {
  const Operation& op = step.operation;
  return op.run_time ? run_time_bytes(op.run_time->send, *op.run_time, step.comm->size(), op.dtype)
                     : static_bytes(op.counts, op.dtype);
}

std::vector<double> all_to_all_received(const BoundCommunication& step) {
  const Operation& op = step.operation;
  return op.run_time ? run_time_bytes(op.run_time->recv, *op.run_time, step.comm->size(), op.dtype)
                     : static_bytes(op.recv_counts, op.dtype);
}

PredictedStep predict(const BoundCommunication& step, const Algorithm& algorithm,
                      const std::vector<int>& hosts) {
  const Operation& op = step.operation;
  Posting posting(step, hosts);
  posting.demand().reduces =
      op.kind == OperationKind::all_reduce || op.kind == OperationKind::reduce_scatter;
  if (op.kind == OperationKind::point_to_point) {
    post_points(op, posting);
  } else if (op.kind == OperationKind::all_to_all_v) {
    post_all_to_all(step, posting);
  } else {
    ScheduleInput input = input_of(step, hosts);
    const bool suits = algorithm.unsuitable(input).empty();
    const Algorithm& used = suits ? algorithm : find_algorithm(kPredictedAlgorithm);
    post_schedule(*used.make(input, step.comm->rank()), op.dtype, posting);
  }
  return posting.take();
}

}  // namespace weft
