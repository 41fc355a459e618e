// What a run holds in memory while it measures one case: its program and buffers, and the program
// bound to each transport and algorithm that are compared.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/accounting.hpp"
#include "bench/placement.hpp"
#include "bench/plan.hpp"
#include "bench/verify.hpp"

namespace weft {

/// What all cases of a run share.
struct CaseContext {
  const Options& options;
  const Plan& plan;
  Bootstrap& bootstrap;
  KernelBackend& backend;
  Streams& streams;
  Bytes last_level_cache = 0;
  bool oversubscribed = false;
};

/// What the command line says of a transport's session.
SessionOptions session_options(const Options& options, std::string_view algorithm,
                               bool oversubscribed);

/// Program, reference and buffers of one case. All members are collective.
class LoadedCase {
 public:
  /// `bindings`: how many BoundCases will live at once. A case that does not fit into memory is
  /// refused(); what is wrong with the program itself throws AgreedError.
  LoadedCase(const CaseContext& context, std::size_t index, int bindings);

  std::size_t index() const { return index_; }
  const std::string& refused() const { return refused_; }
  const Program& program() const { return program_; }
  const std::vector<TensorPlacement>& sets() const { return sets_; }
  /// Bytes of all sets of this rank.
  Bytes rotation_bytes() const;
  Arena& arena() { return *arena_; }
  ResultCheck& check() { return *check_; }

 private:
  void allocate(const CaseContext& context, int bindings);

  std::size_t index_;
  Program program_, reference_;
  std::string refused_;
  std::unique_ptr<Arena> arena_;
  std::vector<TensorPlacement> sets_;
  std::unique_ptr<ResultCheck> check_;
};

/// One case under one transport and algorithm: its session, an execution for each set of buffers.
class BoundCase {
 public:
  /// Collective. Opens, binds, commits; what goes wrong is in refused(). `hollow`: executions with
  /// token payloads too.
  BoundCase(const CaseContext& context, LoadedCase& loaded, std::string transport,
            std::string algorithm, bool hollow);
  /// Collective. Checks exchange and results on the first set, and fills it.
  void verify();
  /// Collective, after verify() of some binding: gives the other sets valid contents.
  void fill_sets();
  /// Collective: what one iteration moves; the time of its gemms; what its buffers hold now.
  void account();

  void iterate(Phase phase) { next(executions_).iterate(phase); }
  /// The next one's own tables into the caches.
  void touch_next(Phase phase) const {
    if (executions_.size() > 1) executions_[(turn_ + 1) % executions_.size()]->touch(phase);
  }
  void iterate_hollow() { next(hollow_).iterate(Phase::overlap); }
  /// Collective: valid contents in all sets again, after compute steps have run alone.
  void refresh_sets();
  /// Collective, after timed iterations of a phase other than compute: empty if the buffers of the
  /// last one hold what a verified iteration left in them; else what is wrong, the same on all
  /// ranks.
  std::string check_timed(Phase phase);
  /// Median over a few instrumented iterations of this rank's time in compute steps, us, with and
  /// without communication at the same time; slowest rank. Collective.
  double compute_us(Phase phase);

  const std::string& transport() const { return transport_; }
  const std::string& algorithm() const { return algorithm_; }
  const std::string& refused() const { return refused_; }
  const Verdict& verdict() const { return verdict_; }
  const IterationTraffic& traffic() const { return traffic_; }
  const GemmTime& gemm() const { return gemm_; }
  Session& session() { return *session_; }
  /// Of all ranks. Collective.
  QueuePairs queue_pairs() {
    return gather_queue_pairs(session_->queue_pairs(), context_.bootstrap);
  }
  Execution& execution() { return *executions_.front(); }

 private:
  using Executions = std::vector<std::unique_ptr<Execution>>;
  void open(bool hollow);
  void bind(bool hollow);
  /// Collective: what the first iteration after fill() leaves in the buffers, and for Phase::comm
  /// one of communication alone after it.
  void make_anew(Execution& execution, Phase phase);
  Execution& next(Executions& executions) {
    last_ = ++turn_ % executions.size();
    return *executions[last_];
  }

  const CaseContext& context_;
  LoadedCase& loaded_;
  std::string transport_, algorithm_, refused_;
  std::unique_ptr<Session> session_;
  Executions executions_, hollow_;
  std::size_t turn_ = 0, last_ = 0;
  Verdict verdict_;
  IterationTraffic traffic_;
  GemmTime gemm_;
  bool keeping_ = false;                        // iterations leave what the next ones read
  std::uint64_t digest_ = 0, comm_digest_ = 0;  // after a whole iteration; after comm alone
};

}  // namespace weft
