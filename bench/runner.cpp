#include "bench/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/cell_row.hpp"
#include "bench/memory_peak.hpp"
#include "bench/observe.hpp"
#include "bench/port_columns.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

bool binds(const BoundCase& bound, const Cell& cell) {
  return bound.transport() == cell.transport && bound.algorithm() == cell.algorithm;
}

template <class T>
std::vector<T> in_plan_order(std::vector<std::pair<const Cell*, T>> items) {
  std::ranges::stable_sort(items, {}, &std::pair<const Cell*, T>::first);
  std::vector<T> sorted;
  for (auto& [cell, item] : items) sorted.push_back(std::move(item));
  return sorted;
}

}  // namespace

Runner::Runner(const RunContext& context)
    : context_(context),
      case_context_{context.options,       context.plan, context.bootstrap,
                    context.backend,       streams_,     context.last_level_cache,
                    context.oversubscribed},
      clocks_(context.bootstrap, context.bootstrap.host_leaders()),
      start_(context.bootstrap, clocks_, context.oversubscribed),
      noise_(context.bootstrap),
      ports_(context.bootstrap),
      seed_(std::hash<std::string>{}(context.launch_id)) {
  for (const Cell& cell : context.plan.cells) selected_.push_back(&cell);
}

Runner::~Runner() { bound_.clear(); }

void Runner::set_activity(std::string text) {
  const std::lock_guard lock(activity_mutex_);
  activity_ = std::move(text);
}

std::string Runner::activity() const {
  const std::lock_guard lock(activity_mutex_);
  const char* step = streams_.current.load(std::memory_order_relaxed);
  return *step ? fmt::format("{}, step '{}'", activity_, step) : activity_;
}

std::vector<Row> Runner::rows() const { return in_plan_order(rows_); }
std::vector<TrafficLine> Runner::traffic_lines() const { return in_plan_order(lines_); }

std::vector<const Cell*> Runner::cells_like(const Cell& cell, bool same_phase) const {
  std::vector<const Cell*> like;
  for (const Cell* other : selected_) {
    if (other->case_index != cell.case_index) continue;
    if (!same_phase || other->phase == cell.phase) like.push_back(other);
  }
  return like;
}

// Every transport and algorithm of the case is bound at once, over one set of tensors, so that they
// can be measured in turns.
void Runner::load(const Cell& cell) {
  if (loaded_ && loaded_->index() == cell.case_index) return;
  close();
  reset_memory_peak();
  clocks_.refresh_if_due();
  start_.renew();
  const std::vector<const Cell*> cells = cells_like(cell, false);
  const bool hollow =
      std::ranges::any_of(cells, [](const Cell* other) { return other->phase == Phase::overlap; });
  std::vector<const Cell*> bindings;
  for (const Cell* other : cells) {
    const bool known = std::ranges::any_of(bindings, [&](const Cell* first) {
      return first->transport == other->transport && first->algorithm == other->algorithm;
    });
    if (!known) bindings.push_back(other);
  }
  loaded_ = std::make_unique<LoadedCase>(case_context_, cell.case_index,
                                         static_cast<int>(bindings.size()));
  for (const Cell* first : bindings) {
    set_activity(fmt::format("setting up {}", first->id));
    beat();
    bound_.push_back(std::make_unique<BoundCase>(case_context_, *loaded_, first->transport,
                                                 first->algorithm, hollow));
  }
  verify_all();
  for (const Cell* first : bindings) {
    for (const auto& bound : bound_) {
      if (!binds(*bound, *first) || !bound->refused().empty() || !bound->verdict().passed) continue;
      bound->account();
      beat();
      for (TrafficLine& line :
           traffic_lines_of(context_, *first, bound->execution(), bound->traffic())) {
        lines_.emplace_back(first, std::move(line));
      }
    }
  }
}

void Runner::close() {
  for (const auto& bound : bound_) {
    if (!bound->refused().empty()) continue;
    const QueuePairs pairs = bound->queue_pairs();
    if (pairs.empty()) continue;
    const auto first = std::ranges::find_if(selected_, [&](const Cell* cell) {
      return cell->case_index == loaded_->index() && binds(*bound, *cell);
    });
    together(context_.bootstrap, [&] {
      if (context_.writer) {
        context_.writer->write_queue_pairs((*first)->id, pairs, context_.bootstrap.hosts());
      }
    });
  }
  bound_.clear();
  loaded_.reset();
}

void Runner::verify_all() {
  BoundCase* good = nullptr;
  for (const auto& bound : bound_) {
    if (!bound->refused().empty()) continue;
    set_activity(fmt::format("verifying {} {} of {}", bound->transport(), bound->algorithm(),
                             context_.plan.pattern->name));
    beat();
    bound->verify();
    not_compared_ += bound->verdict().beyond_budget;
    // The last one: MPI's own collectives are slow where ranks share cores.
    if (bound->verdict().passed) good = bound.get();
    beat();
  }
  if (good) good->fill_sets();
}

CellResult Runner::run(const Cell& cell) {
  std::deque<CellResult>& waiting = results_[cell.id];
  if (waiting.empty()) run_group(cell);
  CellResult result = std::move(waiting.front());
  waiting.pop_front();
  return result;
}

void Runner::run_group(const Cell& cell) {
  set_activity(fmt::format("setting up {}", cell.id));
  beat();
  load(cell);
  std::vector<Entry> entries;
  for (const Cell* member : cells_like(cell, true)) entries.push_back(enter(*member));
  set_activity(fmt::format("measuring {}", cell.id));
  time_group(entries);
  for (Entry& entry : entries) finish(entry);
}

Runner::Entry Runner::enter(const Cell& cell) {
  Entry entry;
  entry.cell = &cell;
  for (const auto& bound : bound_) {
    if (binds(*bound, cell)) entry.bound = bound.get();
  }
  CellResult& result = entry.result;
  result = {identify(context_, cell), std::nan(""), true, entry.bound->refused()};
  if (const int before = times_run_[cell.id]++; before > 0) result.row.set("repetition", before);
  result.row.set("rotation_bytes", loaded_->rotation_bytes());
  if (result.skip_reason.empty()) {
    result.verified = entry.bound->verdict().passed;
    if (!result.verified) result.skip_reason = entry.bound->verdict().why;
  }
  entry.timed = result.skip_reason.empty();
  return entry;
}

// All cells of the group that can run, and for the overlap phase the same programs without payload.
void Runner::time_group(std::vector<Entry>& entries) {
  std::vector<Contestant> contestants;
  for (Entry& entry : entries) {
    if (!entry.timed) continue;
    contestants.push_back({[this, &entry] {
                             entry.bound->iterate(entry.cell->phase);
                             beat();
                           },
                           [&entry] {
                             // Compute alone works on what an earlier exchange left, in place.
                             if (entry.cell->phase == Phase::compute) return;
                             entry.timed_fault = entry.bound->check_timed(entry.cell->phase);
                           },
                           [&entry] { return work_of(entry.bound->session().queue_pairs()); },
                           [&entry] { entry.bound->touch_next(entry.cell->phase); }});
  }
  if (contestants.empty()) return;
  const auto first = std::ranges::find_if(entries, &Entry::timed);
  if (first->cell->phase == Phase::comm) first->bound->refresh_sets();
  const auto timed = contestants.size();
  add_hollow(entries, contestants);
  const std::vector<Measurement> measured =
      measure({context_.bootstrap, start_, noise_, ++seed_, &ports_},
              stopping_rule(context_.options), std::span(contestants));
  std::size_t at = 0, hollow = timed;
  for (Entry& entry : entries) {
    if (!entry.timed) continue;
    complete(entry, measured[at++]);
    if (contestants.size() > timed) add_overlap_figures(entry, measured[hollow++].summary.p50);
  }
}

void Runner::add_hollow(std::vector<Entry>& entries, std::vector<Contestant>& contestants) {
  for (Entry& entry : entries) {
    if (!entry.timed || entry.cell->phase != Phase::overlap) continue;
    contestants.push_back({[this, &entry] {
      entry.bound->iterate_hollow();
      beat();
    }});
  }
}

void Runner::complete(Entry& entry, const Measurement& measurement) {
  const Cell& cell = *entry.cell;
  CellResult& result = entry.result;
  if (!entry.timed_fault.empty()) {
    result.verified = false;
    result.skip_reason = entry.timed_fault;  // no performance value beside a wrong result
    return;
  }
  result.p50_us = measurement.summary.n > 0 ? measurement.summary.p50 : std::nan("");
  medians_[cell.id] = result.p50_us;
  Row& row = result.row;
  add_times(row, measurement);
  row.set("mem_peak_bytes", static_cast<std::int64_t>(
                                context_.bootstrap.max(static_cast<double>(memory_peak_bytes()))));
  const std::vector<Row> parts = observe(
      row, {context_, cell, *entry.bound, start_, clocks_, [this] { beat(); }}, result.p50_us);
  const IterationTraffic& traffic = entry.bound->traffic();
  add_port_columns(row, {measurement.ports, measurement.port_iterations, measurement.posted},
                   traffic.recorded ? &traffic.ledger : nullptr, context_.options.mtu);
  if (cell.phase == Phase::comm) tell_utilisation(entry, parts);
  if (cell.phase != Phase::comm) add_gemm(row, entry.bound->gemm());
  ++measured_;
  noisy_ += measurement.noise.noisy();
  if (!context_.writer) return;
  context_.writer->write_samples(cell.id, measurement.raw);
}

// The sheet has a line a dimension; of its networks the fuller one.
void Runner::tell_utilisation(const Entry& entry, const std::vector<Row>& parts) {
  for (auto& [first, line] : lines_) {
    if (first->case_index != entry.cell->case_index || !binds(*entry.bound, *first)) continue;
    for (const Row& part : parts) {
      if (part.get("dimension") == line.dimension)
        line.utilisation = std::fmax(line.utilisation, part.number("link_util"));
    }
  }
}

void Runner::add_overlap_figures(Entry& entry, double hollow_us) {
  const Cell& cell = *entry.cell;
  const auto median_of = [&](Phase phase) {
    for (const Cell* other : cells_like(cell, false)) {
      if (other->phase != phase || !binds(*entry.bound, *other)) continue;
      const auto found = medians_.find(other->id);
      if (found != medians_.end()) return found->second;
    }
    return std::nan("");
  };
  OverlapFigures figures;
  figures.exposed_us = entry.result.p50_us - hollow_us;
  figures.hidden_share = 1 - figures.exposed_us / median_of(Phase::comm);
  figures.bubble_us = hollow_us - median_of(Phase::compute);
  const double alone = entry.bound->compute_us(Phase::compute);
  figures.compute_slowdown = entry.bound->compute_us(Phase::overlap) / alone;
  add_overlap(entry.result.row, figures);
  for (auto& [first, line] : lines_) {
    if (first->case_index == cell.case_index && binds(*entry.bound, *first)) {
      line.hidden_share = figures.hidden_share;
    }
  }
}

void Runner::finish(Entry& entry) {
  CellResult& result = entry.result;
  const bool ran = entry.bound->refused().empty();
  if (ran && context_.options.verify) result.row.set("verified", result.verified);
  if (!result.skip_reason.empty()) result.row.set("skip_reason", result.skip_reason);
  all_verified_ = all_verified_ && result.verified;
  together(context_.bootstrap, [&] {
    if (context_.writer) context_.writer->write(result.row);
  });
  rows_.emplace_back(entry.cell, result.row);
  results_[entry.cell->id].push_back(std::move(result));
  beat();
}

}  // namespace weft
