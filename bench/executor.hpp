// Executes any Program: binds its tensors to memory, its compute steps to a kernel backend, its
// communication steps to a transport, once; then runs iterations of any phase. There is no other
// timing or execution loop in the suite.
//
//   TensorPlacement buffers(program, arena);
//   Streams streams;
//   Execution run(program, buffers, {bootstrap, backend, arena, *session, streams, seed});  //
//   local session->commit();                   // collective: peers learn of each other's
//   operations run.prepare();                       // fills all tensors, does the prologue
//   run.iterate(Phase::overlap);         // one iteration; ends when this rank's work is done
//
// Wrong: to iterate before commit(), or compute or comm alone before one serial iteration has made
// run-time counts and valid inputs.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "bench/options.hpp"
#include "bench/placement.hpp"
#include "kernels/backend.hpp"
#include "kernels/generator.hpp"
#include "patterns/program.hpp"
#include "transports/communicator.hpp"

namespace weft {

/// The two queues of a rank: compute on the calling thread, communication on a thread of its own
/// while phases overlap. All executions of a rank share them.
struct Streams {
  std::unique_ptr<Stream> compute = make_stream(StreamKind::inline_);
  std::unique_ptr<Stream> comm = make_stream(StreamKind::worker);
  /// Label of the step that is running, for the watchdog's thread; "" between iterations.
  std::atomic<const char*> current{""};
};

/// What communication steps carry. `token`: one element from each rank to each that it would have
/// sent to, in memory apart; the waits for peers stay, the bytes go. With it, an iteration takes
/// what dependencies, imbalance and pipeline bubbles cost.
enum class Payload : std::uint8_t { full, token };

struct ExecutionContext {
  Bootstrap& bootstrap;
  KernelBackend& backend;
  Arena& arena;
  Session& session;
  Streams& streams;
  std::uint64_t seed = 1;
  Payload payload = Payload::full;
};

/// A communication step bound to a communicator; what verification and accounting need to know of
/// it.
struct BoundCommunication {
  Communicator* comm = nullptr;
  OperationId id = 0;
  Operation operation;
  Dimension dim = Dimension::none;
  Direction direction = Direction::forward;
  bool in_prologue = false;
};

/// Time of the gemm steps of one iteration, and of the iteration itself, on this rank.
struct GemmTime {
  double gemm_us = 0, iteration_us = 0;
  double flops = 0;
};

/// When one step ran in an instrumented iteration, us of CLOCK_MONOTONIC. A step's waits for the
/// other stream lie before `begin_us`; what a communication step waits for its peers lies inside.
struct StepSpan {
  int step = 0;  // index in step_labels(), program order
  StreamRole stream = StreamRole::compute;
  double begin_us = 0, end_us = 0;
};

class Execution {
 public:
  Execution(const Program& program, const TensorPlacement& placement,
            const ExecutionContext& context);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// The same with token payloads; commit() after it.
  Execution hollow() const;

  /// Poisons and fills every tensor from the generator, then does the prologue. Collective.
  void prepare();
  /// The two halves of it. Between them every rank must have filled its tensors.
  void fill();
  void run_prologue();
  void iterate(Phase phase);
  /// Its own tables into the caches, ahead of an iteration; buffers stay where they are.
  void touch(Phase phase) const;
  /// Floating-point operations of this rank's gemm steps in one iteration.
  double gemm_flops() const;
  /// One serial iteration with every gemm step timed.
  GemmTime time_gemms();
  /// One iteration with every step timed: by stream, in the order they ran. Slower by two clock
  /// readings a step; samples never come from it.
  std::vector<StepSpan> iterate_traced(Phase phase);
  /// One label a step of the iteration, and what each waits for (indices), program order.
  const std::string& step_label(int step) const { return steps_[at(step)].label; }
  const std::vector<int>& step_after(int step) const { return steps_[at(step)].after_steps; }
  int step_count() const { return static_cast<int>(steps_.size()); }
  bool step_communicates(int step) const { return steps_[at(step)].comm != nullptr; }

  const Program& program() const { return program_; }
  std::byte* address(TensorId tensor, int slot) const { return placement_.address(tensor, slot); }
  /// Communication steps of one iteration, in the order of the comm stream.
  const std::vector<BoundCommunication>& communications() const { return communications_; }
  /// Does one communication step alone, on the calling thread.
  void run_communication(const BoundCommunication& step);

 private:
  struct BoundStep {
    Execution* owner = nullptr;
    std::string label;
    StreamRole stream = StreamRole::compute;
    std::unique_ptr<BoundCompute> compute;  // null for a communication step
    Communicator* comm = nullptr;
    OperationId operation = 0;
    bool gemm = false;
    std::vector<Event*> after;     // of the other stream
    std::vector<int> after_steps;  // all it depends on, as the program says
    StepSpan span;                 // of the last traced iteration
    Event done;
    bool awaited = false;  // by a step of the other stream
  };

  static std::size_t at(int step) { return static_cast<std::size_t>(step); }
  void bind_steps(const std::vector<Step>& steps, std::deque<BoundStep>& bound, bool prologue);
  void bind_compute(const Compute& op, BoundStep& step);
  void bind_communication(const FlatStep& flat, BoundStep& step, bool prologue);
  BoundView bind(const View& view) const;
  Operation operation_of(const Collective& op) const;
  Operation operation_of(const std::vector<SendRecv>& members, GroupId& group) const;
  static bool has(Phase phase, const BoundStep& step);
  void run_step(BoundStep& step, Stream& stream);
  void submit(StreamRole role, Stream& stream);
  void run_overlapped();
  static void run_task(void* step);
  void run_timed(BoundStep& step, Stream& stream);

  const Program& program_;
  const TensorPlacement& placement_;
  ExecutionContext context_;
  std::deque<BoundStep> prologue_, steps_;
  std::vector<BoundCommunication> communications_;
  bool traced_ = false;
};

}  // namespace weft
