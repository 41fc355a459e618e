// A Communicator that runs plans on a Transport. Private to the scheduled session.
#pragma once

#include <memory>
#include <vector>

#include "patterns/error.hpp"
#include "transports/run_time_counts.hpp"
#include "transports/scheduled_plan.hpp"
#include "transports/transport.hpp"

namespace weft {

/// A control area is one line per member for what this rank publishes, then one per member for what
/// it is told.
inline constexpr Bytes kControlLine = 64;
static_assert(run_time_control_bytes(1) == 2 * kControlLine);

/// What all communicators of a session share.
struct ScheduledWorld {
  Arena& arena;
  Transport& transport;
  FlowRecorder& recorder;
  const Algorithm& algorithm;
  bool native;             // the wire's own forms come first
  Rank rank;               // this one
  std::vector<int> hosts;  // host index of every rank
};

class ScheduledCommunicator final : public Communicator {
 public:
  ScheduledCommunicator(const ScheduledWorld& world, const CommKey& key);

  const CommKey& key() const { return key_; }

  // commit(), in this order.
  /// The operations prepared since the last commit. Takes the control area when one of them has
  /// run-time counts.
  CommRecord record();
  /// Scratch that they need, in bytes.
  Bytes scratch_bytes(const GroupMatch& match) const;
  /// Binds them to the members' memory; `ranks` are the records of all ranks.
  void bind(const GroupMatch& match, const std::vector<RankRecord>& ranks, CommId id);

 private:
  void do_prepare(OperationId id, const Operation& operation) override;
  void do_run(OperationId id, Stream& stream) override;
  void do_touch(OperationId id) const override;

  std::string what(const Operation& operation) const;
  OperationRecord record_of(const Operation& operation) const;
  PointRecord record_of(const PointToPoint& member) const;
  Bytes place_of(const BoundView& view, const Operation& operation) const;
  /// Throws Error(usage) where the algorithm cannot do it.
  const Algorithm& algorithm_for(const Matched& matched, const ScheduleInput& input) const;
  ScheduleInput input_of(const Matched& matched) const;
  OperationPlan plan_collective(const Operation& operation, const Matched& matched,
                                const std::vector<RankRecord>& ranks) const;
  bool needs_credits(const Matched& matched) const;
  /// Has the wire prepare the plan's messages, and finds out whether it must be flushed.
  void prepare_sends(OperationPlan& plan) const;
  NativeInput native_input(const Operation& operation, const Matched& matched) const;
  /// Of each peer: how many messages have been planned, what leave they have, where they go.
  struct PointsSeen {
    std::vector<std::size_t> sent, received;
    std::vector<std::vector<GroupMatch::Leave>> out, in;
    std::vector<std::vector<PointRecord>> targets;  // of what is sent: as the peer lists them
  };
  PointsSeen points_of(const GroupMatch& match) const;
  OperationPlan plan_points(const Operation& operation, PointsSeen& seen) const;
  bool is_point(OperationId id) const {
    return operation(id).kind == OperationKind::point_to_point;
  }

  void execute(const OperationPlan& plan);
  void execute(const OperationPlan& plan, const PlanStep& step);
  void execute_other(const OperationPlan& plan, const PlanStep& step);
  void execute_as_ready(const OperationPlan& plan, std::span<const PlanStep> steps);
  void execute_run_time(const Operation& operation, const char* what);
  void publish_destination(int peer, const Operation& operation);
  void send_run_time(int peer, const Operation& operation, const char* what);
  /// An empty message: a credit, or an offer on the data channel.
  void tell(int peer, std::uint16_t channel);
  void take_credit(int peer, const char* what);
  /// One of a plan's messages; or one of which only run-time counts tell.
  void start_recorded(const PlanStep& step);
  void send(int peer, Bytes from, Bytes to, Bytes n);
  void record_parts(int peer, std::span<const PostedPart> parts, double posted_us);
  void fetch(int peer, Bytes from, Bytes to, Bytes n);
  void await(int peer, std::uint64_t messages, const char* what);
  void record_message(int from, int to, const PostedPart& part, MessageKind kind, double posted_us);
  double post_time_us() const;  // 0 where nobody records
  Channel channel(int peer, std::uint16_t id) const;
  [[noreturn]] void fail_in(const OperationPlan& plan, const Error& error) const;

  const ScheduledWorld& world_;
  CommKey key_;
  CommId id_ = 0;
  std::vector<Network> networks_;                  // by group index, as are the next two
  std::vector<std::uint64_t> messages_, credits_;  // seen so far of each peer
  std::vector<Expected> expected_;                 // credits, in a plan's step as_ready,
  std::vector<const PlanStep*> leaves_;            // and the steps that take them
  std::vector<OperationPlan> plans_;               // by operation id; committed ones only
  const PlanStep* step_ = nullptr;                 // of the plan in progress
  Bytes control_ = -1;                             // own control area; -1: none yet
  std::vector<Bytes> peer_control_;
  ExchangeCounts counts_;
};

}  // namespace weft
