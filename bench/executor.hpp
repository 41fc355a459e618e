// Executes any Program: binds its tensors to memory, its compute steps to a kernel backend, its
// communication steps to a transport, once; then runs iterations of any phase. There is no other
// timing or execution loop in the suite.
//
//   Execution run(program, {bootstrap, backend, arena, *session, seed});   // local
//   session->commit();                   // collective: peers learn of each other's operations
//   run.prepare();                       // fills all tensors, does the prologue
//   run.iterate(Phase::overlap);         // one iteration; ends when this rank's work is done
//
// Wrong: to iterate before commit(), or compute or comm alone before one serial iteration has made
// run-time counts and valid inputs.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "bench/options.hpp"
#include "kernels/backend.hpp"
#include "kernels/generator.hpp"
#include "patterns/program.hpp"
#include "transports/communicator.hpp"

namespace weft {

struct ExecutionContext {
  Bootstrap& bootstrap;
  KernelBackend& backend;
  Arena& arena;
  Session& session;
  std::uint64_t seed = 1;
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

class Execution {
 public:
  Execution(const Program& program, const ExecutionContext& context);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// Bytes of arena that the tensors of a program take, with alignment.
  static Bytes arena_bytes(const Program& program);

  /// Poisons and fills every tensor from the generator, then does the prologue.
  void prepare();
  void iterate(Phase phase);
  /// Floating-point operations of this rank's gemm steps in one iteration.
  double gemm_flops() const;
  /// One serial iteration with every gemm step timed.
  GemmTime time_gemms();

  const Program& program() const { return program_; }
  std::byte* address(TensorId tensor, int slot) const;
  /// Communication steps of one iteration, in the order of the comm stream.
  const std::vector<BoundCommunication>& communications() const { return communications_; }
  /// Does one communication step alone, on the calling thread.
  void run_communication(const BoundCommunication& step);
  /// Label of the step that each stream is in, for the watchdog; empty where idle.
  const char* current_step() const { return current_.load(std::memory_order_relaxed); }

 private:
  struct BoundStep {
    Execution* owner = nullptr;
    std::string label;
    StreamRole stream = StreamRole::compute;
    std::unique_ptr<BoundCompute> compute;  // null for a communication step
    Communicator* comm = nullptr;
    OperationId operation = 0;
    bool gemm = false;
    std::vector<Event*> after;  // of the other stream
    Event done;
    bool awaited = false;  // by a step of the other stream
  };

  void place_tensors();
  void bind_steps(const std::vector<Step>& steps, std::deque<BoundStep>& bound, bool prologue);
  void bind_compute(const Compute& op, BoundStep& step);
  void bind_communication(const FlatStep& flat, BoundStep& step, bool prologue);
  BoundView bind(const View& view) const;
  Operation operation_of(const Collective& op) const;
  Operation operation_of(const std::vector<SendRecv>& members, GroupId& group) const;
  void run_step(BoundStep& step, Stream& stream);
  void submit(StreamRole role, Stream& stream);
  void run_overlapped();
  static void run_task(void* step);

  const Program& program_;
  ExecutionContext context_;
  std::vector<std::vector<std::byte*>> addresses_;  // [tensor][slot]
  std::deque<BoundStep> prologue_, steps_;
  std::vector<BoundCommunication> communications_;
  std::unique_ptr<Stream> inline_, worker_;
  std::atomic<const char*> current_{""};
};

}  // namespace weft
