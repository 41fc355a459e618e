#include "bench/bound_case.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/contents.hpp"
#include "bench/token_payload.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr int kGemmIterations = 5;
constexpr int kTracedIterations = 5;
constexpr double kUsableShare =
    0.9;  // of free memory: the rest is for the system, the kernels' scratch and the reference

// Scratch of one communication step under any algorithm: the one-shot sum needs a whole message per
// peer, others less. Of this room the arena takes addresses only, memory when it is used.
Bytes scratch_room(const Program& program, int bindings, int sets) {
  Bytes room = 0, tokens = 0;
  const auto bytes = [&](const View& view) {
    return view.elements() * size_of(program.tensors[static_cast<std::size_t>(view.tensor)].dtype);
  };
  const auto look = [&](const Step& step, std::int64_t times) {
    if (const auto* op = std::get_if<Collective>(&step.op)) {
      const Bytes members = program.groups[static_cast<std::size_t>(op->group)].ranks.size();
      room = std::max(room, (members + 2) * std::max(bytes(op->in), bytes(op->out)));
      tokens += times * kMostTokenBytes * members;
    } else if (std::holds_alternative<SendRecv>(step.op)) {
      tokens += times * kMostTokenBytes;
    }
  };
  for_each_leaf(program.prologue, look);
  for_each_leaf(program.steps, look);
  return bindings * (room + sets * tokens + (Bytes{1} << 20));
}

std::string gibibytes(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

// Added up over the ranks of this rank's machine: they share its memory and its caches.
double sum_of_host(Bootstrap& bootstrap, double mine) {
  const std::vector<double> all = bootstrap.all_gather(mine);
  const auto& hosts = bootstrap.hosts();
  const std::string here = real_host(hosts[static_cast<std::size_t>(bootstrap.rank())]);
  double sum = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (real_host(hosts[rank]) == here) sum += all[rank];
  }
  return sum;
}

void check_memory(Bootstrap& bootstrap, Bytes mine) {
  const double needed = sum_of_host(bootstrap, static_cast<double>(mine));
  const double ranks = sum_of_host(bootstrap, 1);
  const FreeMemory free = free_memory();
  together(bootstrap, [&] {
    if (needed <= kUsableShare * static_cast<double>(free.bytes)) return;
    const std::string& host = bootstrap.hosts()[static_cast<std::size_t>(bootstrap.rank())];
    fail_usage(fmt::format(
        "needs {} on host {} ({} ranks), free {} ({}); choose a smaller --model, --seq, --layers "
        "or --sizes, or fewer ranks per host",
        gibibytes(needed), real_host(host), ranks, gibibytes(static_cast<double>(free.bytes)),
        free.limit));
  });
}

std::size_t leaf_steps(const Program& program) {
  std::int64_t steps = 0;
  for_each_leaf(program.steps, [&](const Step&, std::int64_t times) { steps += times; });
  return static_cast<std::size_t>(steps);
}

bool computes(const Program& program) {
  bool any = false;
  for_each_leaf(program.steps, [&](const Step& step, std::int64_t) {
    any = any || std::holds_alternative<Compute>(step.op);
  });
  return any;
}

// Moments of an optimizer go from iteration to iteration: what is in the buffers depends on how
// many there were.
bool keeps_state(const Program& program) {
  bool any = false;
  for_each_leaf(program.steps, [&](const Step& step, std::int64_t) {
    const auto* compute = std::get_if<Compute>(&step.op);
    any = any || (compute != nullptr && compute->kind == ComputeKind::adam);
  });
  return any;
}

// A tensor that iterations write: one that is checked, or a sweep's last.
const Tensor* result_tensor(const Program& program) {
  const Tensor* result = nullptr;
  for (const Tensor& tensor : program.tensors) {
    if (tensor.elements() == 0) continue;
    if (tensor.check) return &tensor;
    result = &tensor;
  }
  return result;
}

}  // namespace

LoadedCase::LoadedCase(const CaseContext& context, std::size_t index, int bindings)
    : index_(index) {
  const Case& c = context.plan.cases[index];
  together(context.bootstrap, [&] {
    program_ = context.plan.program(c, context.bootstrap.rank());
    reference_ = context.plan.reference(c);
    validate(program_);
  });
  try {
    allocate(context, bindings);
  } catch (const AgreedError& error) {
    refused_ = error.what();
  }
}

void LoadedCase::allocate(const CaseContext& context, int bindings) {
  Bootstrap& bootstrap = context.bootstrap;
  const Bytes set = TensorPlacement::bytes(program_);
  check_memory(bootstrap, set);
  const double of_host = sum_of_host(bootstrap, static_cast<double>(set));
  const int mine = rotation_sets(static_cast<Bytes>(of_host), context.last_level_cache,
                                 leaf_steps(program_), context.options.hot);
  // One number for all: they take turns together.
  const int sets = static_cast<int>(bootstrap.max(mine));
  check_memory(bootstrap, sets * set);
  together(bootstrap, [&] {
    arena_ = std::make_unique<Arena>(context.backend.space(), sets * set,
                                     scratch_room(program_, bindings, sets));
    for (int i = 0; i < sets; ++i) sets_.emplace_back(program_, *arena_);
    check_ = std::make_unique<ResultCheck>(reference_, context.options.seed);
  });
}

Bytes LoadedCase::rotation_bytes() const {
  return static_cast<Bytes>(sets_.size()) * TensorPlacement::bytes(program_);
}

SessionOptions session_options(const Options& options, std::string_view algorithm,
                               bool oversubscribed) {
  SessionOptions session;
  session.algorithm = algorithm;
  session.timeout = std::chrono::duration<double>(options.timeout);
  session.oversubscribed = oversubscribed;
  session.verbs = options.verbs;
  session.verbs.queue_pairs = options.queue_pairs;
  return session;
}

BoundCase::BoundCase(const CaseContext& context, LoadedCase& loaded, std::string transport,
                     std::string algorithm, bool hollow)
    : context_(context),
      loaded_(loaded),
      transport_(std::move(transport)),
      algorithm_(std::move(algorithm)),
      refused_(loaded.refused()) {
  if (!refused_.empty()) return;
  try {
    open(hollow);
  } catch (const AgreedError& error) {
    refused_ = error.what();
  }
}

void BoundCase::open(bool hollow) {
  Bootstrap& bootstrap = context_.bootstrap;
  const SessionOptions options =
      session_options(context_.options, algorithm_, context_.oversubscribed);
  together(bootstrap, [&] {
    session_ = find_transport(transport_).open(bootstrap, loaded_.arena(), options);
  });
  together(bootstrap, [&] { bind(hollow); });
  together(bootstrap, [&] { session_->commit(); });
}

void BoundCase::bind(bool hollow) {
  for (const TensorPlacement& set : loaded_.sets()) {
    executions_.push_back(std::make_unique<Execution>(
        loaded_.program(), set,
        ExecutionContext{context_.bootstrap, context_.backend, loaded_.arena(), *session_,
                         context_.streams, context_.options.seed}));
  }
  if (!hollow) return;
  for (const auto& full : executions_) {
    hollow_.push_back(std::unique_ptr<Execution>(new Execution(full->hollow())));
  }
}

void BoundCase::verify() {
  if (context_.options.verify) {
    verdict_ =
        weft::verify(execution(), loaded_.check(), context_.bootstrap, context_.options.injection);
  } else {
    execution().prepare();
    execution().iterate(Phase::serial);
  }
}

void BoundCase::fill_sets() {
  for (std::size_t set = 1; set < executions_.size(); ++set) executions_[set]->fill();
  // One for all sets: with more ranks than cores each costs a round of the scheduler.
  context_.bootstrap.barrier();
  for (std::size_t set = 1; set < executions_.size(); ++set) executions_[set]->run_prologue();
  refresh_sets();
}

void BoundCase::refresh_sets() {
  // A message-size sweep writes all that it reads.
  if (context_.bootstrap.max(computes(loaded_.program())) == 0) return;
  for (const auto& execution : executions_) execution->iterate(Phase::serial);
}

void BoundCase::make_anew(Execution& execution, Phase phase) {
  if (keeping_) execution.prepare();
  execution.iterate(Phase::serial);
  if (phase == Phase::comm) execution.iterate(Phase::comm);
}

void BoundCase::account() {
  traffic_ = account_iteration(execution(), *session_, context_.bootstrap, algorithm_);
  keeping_ = context_.bootstrap.max(keeps_state(loaded_.program())) > 0;
  if (keeping_) make_anew(execution(), Phase::serial);
  digest_ = contents_digest(loaded_.program(), loaded_.sets().front());
  execution().iterate(Phase::comm);  // undoes what compute steps did in place to what was received
  comm_digest_ = contents_digest(loaded_.program(), loaded_.sets().front());
  execution().iterate(Phase::serial);
  std::vector<GemmTime> times;
  const bool any = execution().gemm_flops() > 0;  // not on a rank of a sweep
  for (int i = 0; context_.bootstrap.max(any) > 0 && i < kGemmIterations; ++i) {
    times.push_back(execution().time_gemms());
  }
  std::ranges::sort(times, {}, &GemmTime::gemm_us);
  if (!times.empty()) gemm_ = times[times.size() / 2];
  gemm_.gemm_us = context_.bootstrap.max(gemm_.gemm_us);
  gemm_.flops = context_.bootstrap.max(gemm_.flops);
}

std::string BoundCase::check_timed(Phase phase) {
  if (!context_.options.verify) return {};
  Bootstrap& bootstrap = context_.bootstrap;
  const Injection& injection = context_.options.injection;
  Execution& last = *executions_[last_];
  const bool computing = bootstrap.max(computes(loaded_.program())) > 0;
  // What compute steps made of another algorithm's sums differs in last bits.
  if (keeping_ || (computing && phase == Phase::comm)) make_anew(last, phase);
  if (const Tensor* tensor = result_tensor(loaded_.program())) {
    const auto id = static_cast<TensorId>(tensor - loaded_.program().tensors.data());
    injection.apply("timed", bootstrap.rank(), last.address(id, 0), tensor->elements(),
                    tensor->dtype);
  }
  const std::uint64_t wanted = phase == Phase::comm ? comm_digest_ : digest_;
  const bool same = contents_digest(loaded_.program(), loaded_.sets()[last_]) == wanted;
  if (bootstrap.all(same)) return {};
  // Another order of summing gives other last bits: results decide, where there are any to compare.
  std::string mine;
  if (computing && phase != Phase::comm) {
    mine = loaded_.check().run(last, bootstrap, Injection{}).why;
  } else if (!same) {
    const auto me = static_cast<std::size_t>(bootstrap.rank());
    mine = fmt::format("rank {} on {}: its buffers changed", me, bootstrap.hosts()[me]);
  }
  for (const std::string& why : bootstrap.all_gather(mine)) {
    if (!why.empty()) return "after the timed iterations: " + why;
  }
  return {};
}

double BoundCase::compute_us(Phase phase) {
  std::vector<double> sums;
  for (int i = 0; i < kTracedIterations; ++i) {
    context_.bootstrap.barrier();
    double sum = 0;
    for (const StepSpan& span : next(executions_).iterate_traced(phase)) {
      if (span.stream == StreamRole::compute) sum += span.end_us - span.begin_us;
    }
    sums.push_back(sum);
  }
  std::ranges::sort(sums);
  return context_.bootstrap.max(sums[sums.size() / 2]);
}

}  // namespace weft
