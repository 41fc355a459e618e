// Communicator: the communication operations of one group, on some transport. An operation is
// prepared once (memory resolved, schedule expanded, peers' addresses exchanged) and run many
// times; run() allocates and looks up nothing.
//
//   auto session = find_transport("shm").open(bootstrap, arena, options);
//   Communicator& comm = session->communicator(group);
//   OperationId op = comm.prepare(Operation{.kind = OperationKind::all_gather, .in = x, .out = y,
//   .counts = {...}}); session->commit();                 // collective over the world, once, after
//   all prepare() of all communicators comm.run(op, stream);              // on the stream's
//   thread; recorded
//
// Wrong: prepare() in another order than the other members; run() before commit(); an all_reduce
// whose in and out are the same memory (repeated sums overflow, and rounds would read what they
// wrote).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/buffer.hpp"
#include "kernels/stream.hpp"
#include "patterns/program.hpp"
#include "transports/bootstrap.hpp"
#include "transports/flow.hpp"
#include "transports/queue_pair_facts.hpp"
#include "transports/verbs_options.hpp"

namespace weft {

using OperationId = int;

enum class OperationKind : std::uint8_t {
  all_gather,
  all_reduce,
  reduce_scatter,
  broadcast,
  all_to_all_v,
  point_to_point,
};
std::string_view to_string(OperationKind kind);

/// Counts of an all_to_all_v that are known at run time only, read when run() starts: rows for peer
/// p are the sum of entries [p*per_peer, (p+1)*per_peer). Capacity is the size of `in` and `out`;
/// more is Error(failed).
struct RunTimeCounts {
  const std::int32_t* send = nullptr;
  const std::int32_t* recv = nullptr;
  int per_peer = 1;
  Index row_elements = 1;
};

struct PointToPoint {
  bool send = true;
  int peer = 0;  // index in the group
  BoundView data{};
};

struct Operation {
  OperationKind kind = OperationKind::all_reduce;
  BoundView in{}, out{};        // contiguous, inside the session's arena
  std::vector<Index> counts{};  // as in patterns Collective, elements
  std::vector<Index> recv_counts{};
  std::optional<RunTimeCounts> run_time{};
  int root = 0;
  std::vector<PointToPoint> members{};  // point_to_point: posted together, then all waited for
  bool in_order = false;  // point_to_point: no message is sent before what is received before it
  DType dtype = DType::f32;
  std::string label{};  // for errors: which step
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }  // index in the group
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<Rank>& ranks() const { return ranks_; }  // global
  Dimension dim() const { return dim_; }

  /// Makes an operation ready. Local; every member prepares the same operations in the same order
  /// (point-to-point: FIFO per ordered pair). Throws Error(usage) on counts or views that do not
  /// fit.
  OperationId prepare(const Operation& operation);
  /// Does it, on the calling thread, which is the stream's. Ends when this rank's output is
  /// complete and its input may be overwritten. Throws Error(timed_out) naming the peers that are
  /// missing.
  void run(OperationId id, Stream& stream);
  /// Reads what the next run() of it will look up about itself, so that a sample of it holds the
  /// costs of its buffers, not of tables that nobody else would have. Local, changes nothing.
  void touch(OperationId id) const;
  /// What is happening now, for the watchdog: label of the operation in progress, or null.
  const char* in_progress() const { return in_progress_.load(std::memory_order_relaxed); }

 protected:
  Communicator(std::vector<Rank> ranks, int rank, Dimension dim);
  const Operation& operation(OperationId id) const {
    return *operations_[static_cast<std::size_t>(id)];
  }
  std::size_t prepared() const { return operations_.size(); }

 private:
  virtual void do_prepare(OperationId id, const Operation& operation) = 0;
  virtual void do_run(OperationId id, Stream& stream) = 0;
  virtual void do_touch(OperationId) const {}

  std::vector<Rank> ranks_;
  int rank_;
  Dimension dim_;
  // They stay where they are: plans point at them.
  std::vector<std::unique_ptr<const Operation>> operations_;
  std::atomic<const char*> in_progress_{nullptr};
};

struct SessionOptions {
  std::string algorithm;  // of the transport's list; empty: its first
  std::chrono::duration<double> timeout{60};
  VerbsOptions verbs{};
  bool oversubscribed = false;  // more ranks than cores: waits yield at once, then sleep
};

/// All communicators of one rank over one transport and one arena.
class Session {
 public:
  virtual ~Session() = default;
  /// The communicator of a group this rank belongs to; the same object for an equal group.
  virtual Communicator& communicator(const Group& group) = 0;
  /// Collective over the world: exchanges what the prepared operations need of each other. May be
  /// called again after more prepare().
  virtual void commit() = 0;
  /// What this rank posted since clear(). `flow_source` is "recorded" where the transport sees its
  /// messages; empty where it does not (mpi), and the ledger stays empty.
  virtual FlowRecorder& recorder() = 0;
  virtual std::string_view flow_source() const = 0;
  /// This rank's queue pairs, with what was sent on them since they were made; empty where the
  /// transport has none.
  virtual std::vector<QueuePairFacts> queue_pairs() const { return {}; }
};

/// An entry of the explicit list in registry.cpp.
struct TransportInfo {
  std::string_view name;
  std::string_view summary;
  std::vector<std::string_view> algorithms;  // first is the default
  /// Why it cannot be used by these ranks, in one line; empty if it can. Collective.
  std::function<std::string(Bootstrap&)> unavailable;
  std::function<std::unique_ptr<Session>(Bootstrap&, Arena&, const SessionOptions&)> open;
  bool hidden = false;  // runs only when asked for by name
};

const std::vector<TransportInfo>& transports();
/// Throws Error(usage) that lists the known names.
const TransportInfo& find_transport(std::string_view name);

}  // namespace weft
