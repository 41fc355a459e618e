#include "bench/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/cell_row.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr int kGemmIterations = 5;
constexpr double kUsableShare =
    0.9;  // of free memory: the rest is for the system, the kernels' scratch and the reference

// Scratch of one communication step under any algorithm: the one-shot sum needs a whole message per
// peer, others less. Of this room the arena takes addresses only, memory when it is used.
Bytes scratch_room(const Program& program) {
  Bytes room = 0;
  const auto bytes = [&](const View& view) {
    return view.elements() * size_of(program.tensors[static_cast<std::size_t>(view.tensor)].dtype);
  };
  const auto look = [&](const Step& step, std::int64_t) {
    const auto* op = std::get_if<Collective>(&step.op);
    if (!op) return;
    const Bytes members = program.groups[static_cast<std::size_t>(op->group)].ranks.size();
    room = std::max(room, (members + 2) * std::max(bytes(op->in), bytes(op->out)));
  };
  for_each_leaf(program.prologue, look);
  for_each_leaf(program.steps, look);
  return room + (Bytes{1} << 20);
}

std::string gibibytes(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

}  // namespace

struct Runner::Loaded {
  std::size_t index = 0;
  Program program, reference;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<ResultCheck> check;
  std::string refused;  // why the case cannot run
};

struct Runner::Bound {
  std::string transport, algorithm;
  std::unique_ptr<Session> session;
  std::unique_ptr<Execution> execution;
  std::string refused;
  Verdict verdict;
  IterationTraffic traffic;
  GemmTime gemm;
};

Runner::Runner(const RunContext& context)
    : context_(context), start_(context.bootstrap, context.oversubscribed) {}

Runner::~Runner() { bound_.reset(); }

std::string Runner::activity() const {
  const char* step = bound_ && bound_->execution ? bound_->execution->current_step() : "";
  return *step ? fmt::format("{}, step '{}'", activity_, step) : activity_;
}

// Ranks of one machine share its memory, so their needs are added up before anyone allocates.
void Runner::check_memory(Bytes mine) const {
  Bootstrap& bootstrap = context_.bootstrap;
  const std::vector<double> needs = bootstrap.all_gather(static_cast<double>(mine));
  const auto& hosts = bootstrap.hosts();
  const std::string here = real_host(hosts[static_cast<std::size_t>(bootstrap.rank())]);
  double needed = 0;
  int ranks = 0;
  for (std::size_t rank = 0; rank < needs.size(); ++rank) {
    if (real_host(hosts[rank]) != here) continue;
    needed += needs[rank];
    ++ranks;
  }
  const FreeMemory free = free_memory();
  together(bootstrap, [&] {
    if (needed <= kUsableShare * static_cast<double>(free.bytes)) return;
    fail_usage(fmt::format(
        "needs {} on host {} ({} ranks), free {} ({}); choose a smaller --model, --seq, --layers "
        "or "
        "--sizes, or fewer ranks per host",
        gibibytes(needed), here, ranks, gibibytes(static_cast<double>(free.bytes)), free.limit));
  });
}

void Runner::load_case(std::size_t index) {
  bound_.reset();
  loaded_.reset();
  loaded_ = std::make_unique<Loaded>();
  Loaded& loaded = *loaded_;
  loaded.index = index;
  const Case& c = context_.plan.cases[index];
  together(context_.bootstrap, [&] {
    loaded.program = context_.plan.program(c, context_.bootstrap.rank());
    loaded.reference = context_.plan.reference(c);
    validate(loaded.program);
  });
  try {
    const Bytes needed = Execution::arena_bytes(loaded.program);
    check_memory(needed);
    together(context_.bootstrap, [&] {
      loaded.arena =
          std::make_unique<Arena>(context_.backend.space(), needed, scratch_room(loaded.program));
      loaded.check = std::make_unique<ResultCheck>(loaded.reference, context_.options.seed);
    });
  } catch (const AgreedError& error) {
    loaded.refused = error.what();
  }
}

void Runner::bind(const Cell& cell) {
  bound_.reset();
  bound_ = std::make_unique<Bound>();
  Bound& bound = *bound_;
  bound.transport = cell.transport;
  bound.algorithm = cell.algorithm;
  bound.refused = loaded_->refused;
  if (!bound.refused.empty()) return;
  loaded_->arena->reset();
  SessionOptions options;
  options.algorithm = cell.algorithm;
  options.timeout = std::chrono::duration<double>(context_.options.timeout);
  options.oversubscribed = context_.oversubscribed;
  try {
    together(context_.bootstrap, [&] {
      bound.session =
          find_transport(cell.transport).open(context_.bootstrap, *loaded_->arena, options);
    });
    together(context_.bootstrap, [&] {
      bound.execution = std::make_unique<Execution>(
          loaded_->program, ExecutionContext{context_.bootstrap, context_.backend, *loaded_->arena,
                                             *bound.session, context_.options.seed});
    });
    together(context_.bootstrap, [&] { bound.session->commit(); });
  } catch (const AgreedError& error) {
    bound.refused = error.what();
    return;
  }
  verify_bound(cell);
  if (bound.verdict.passed) account_bound(cell);
}

void Runner::verify_bound(const Cell& cell) {
  Bound& bound = *bound_;
  activity_ = fmt::format("verifying {}", cell.id);
  beat();
  if (context_.options.verify) {
    bound.verdict =
        verify(*bound.execution, *loaded_->check, context_.bootstrap, context_.options.injection);
    not_compared_ += bound.verdict.beyond_budget;
  } else {
    bound.execution->prepare();
    bound.execution->iterate(Phase::serial);
  }
  beat();
}

void Runner::account_bound(const Cell& cell) {
  Bound& bound = *bound_;
  bound.traffic = account_iteration(*bound.execution, *bound.session, context_.bootstrap);
  std::vector<GemmTime> times;
  const bool any = bound.execution->gemm_flops() > 0;  // not on a rank of a sweep
  for (int i = 0; context_.bootstrap.max(any) > 0 && i < kGemmIterations; ++i) {
    times.push_back(bound.execution->time_gemms());
  }
  std::ranges::sort(times, {}, &GemmTime::gemm_us);
  if (!times.empty()) bound.gemm = times[times.size() / 2];
  bound.gemm.gemm_us = context_.bootstrap.max(bound.gemm.gemm_us);
  bound.gemm.flops = context_.bootstrap.max(bound.gemm.flops);
  const auto lines = traffic_lines_of(context_, cell, *bound.execution, bound.traffic);
  lines_.insert(lines_.end(), lines.begin(), lines.end());
  beat();
}

Measurement Runner::measure_cell(const Cell& cell) {
  const Options& options = context_.options;
  StoppingRule rule;
  rule.precision = options.precision;
  rule.min_time_us = options.min_time * 1e6;
  rule.max_time_us = options.max_time * 1e6;
  Execution& execution = *bound_->execution;
  activity_ = fmt::format("measuring {}", cell.id);
  return measure(context_.bootstrap, start_, rule, [&] {
    execution.iterate(cell.phase);
    beat();
  });
}

void Runner::load(const Cell& cell) {
  if (!loaded_ || loaded_->index != cell.case_index) load_case(cell.case_index);
  if (!bound_ || bound_->transport != cell.transport || bound_->algorithm != cell.algorithm)
    bind(cell);
}

CellResult Runner::run(const Cell& cell) {
  activity_ = fmt::format("setting up {}", cell.id);
  beat();
  load(cell);
  CellResult result{identify(context_, cell), std::nan(""), true, bound_->refused};
  Row& row = result.row;
  if (const int before = times_run_[cell.id]++; before > 0) row.set("repetition", before);
  if (!result.skip_reason.empty()) {
    row.set("skip_reason", result.skip_reason);
    return finish(cell, std::move(result));
  }
  result.verified = bound_->verdict.passed;
  if (context_.options.verify) row.set("verified", result.verified);
  if (!result.verified) {
    row.set("skip_reason", bound_->verdict.why);  // no performance value beside a wrong result
    return finish(cell, std::move(result));
  }
  const Measurement measurement = measure_cell(cell);
  result.p50_us = measurement.summary.n > 0 ? measurement.summary.p50 : std::nan("");
  add_times(row, measurement);
  if (cell.phase != Phase::compute) add_traffic(row, context_, bound_->traffic, result.p50_us);
  if (cell.phase != Phase::comm) add_gemm(row, bound_->gemm);
  if (context_.writer) {
    context_.writer->write_samples(cell.id, measurement.raw);
    if (cell.phase != Phase::compute && bound_->traffic.recorded) {
      context_.writer->write_flows(cell.id, bound_->traffic.ledger.flows(),
                                   context_.bootstrap.hosts(), "recorded");
    }
  }
  ++measured_;
  return finish(cell, std::move(result));
}

CellResult Runner::finish(const Cell&, CellResult result) {
  all_verified_ = all_verified_ && result.verified;
  together(context_.bootstrap, [&] {
    if (context_.writer) context_.writer->write(result.row);
  });
  rows_.push_back(result.row);
  beat();
  return result;
}

}  // namespace weft
