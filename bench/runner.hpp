// Runs the cells of a plan: loads a case, binds it to every transport and algorithm that it is to
// be compared under, verifies, accounts, measures those of one phase against each other, writes the
// rows. One way for every pattern, transport and phase.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/bound_case.hpp"
#include "bench/link_use.hpp"
#include "bench/measure.hpp"
#include "bench/plan.hpp"
#include "bench/port_meter.hpp"
#include "bench/row_writer.hpp"
#include "bench/traffic_sheet.hpp"
#include "bench/watchdog.hpp"

namespace weft {

/// What all cells of a run share.
struct RunContext {
  const Options& options;
  const Plan& plan;
  Bootstrap& bootstrap;
  KernelBackend& backend;
  RowWriter* writer = nullptr;  // rank 0 only
  std::string launch_id;
  double copy_limit_GBps = 0;
  int threads_per_rank = 1;
  int cores = 1;  // usable on the rank's host
  bool oversubscribed = false;
  std::string binding, binding_note;
  bool streams_share_cores = true;  // a rank's comm stream has no core that its gemm leaves free
  Bytes last_level_cache = 0;       // of a host; 0: unknown
  LinkRates links;                  // of the links between hosts
};

/// What became of a cell; the same on every rank.
struct CellResult {
  Row row;
  double p50_us = 0;  // NaN: skipped or not verified
  bool verified = true;
  std::string skip_reason;
};

class Runner {
 public:
  /// Collective.
  explicit Runner(const RunContext& context);
  ~Runner();

  /// The cells that will be asked for, in plan order: what is measured together follows from them.
  /// Without it: all of the plan.
  void select(std::vector<const Cell*> cells) { selected_ = std::move(cells); }

  /// Collective. Measures the cell together with the other selected ones of its case and phase, if
  /// that was not done when one of those was asked for; writes their rows. Throws Error only where
  /// the run cannot go on; what concerns one cell is in its result.
  CellResult run(const Cell& cell);
  /// Collective: lets go of the case that is loaded, and tells what went over its queue pairs.
  void close();

  /// What is being done, for the watchdog ("cell ..., step ...").
  std::string activity() const;
  void set_watchdog(Watchdog* watchdog) { watchdog_ = watchdog; }

  /// In plan order, as a reader expects them; files have the order of the run.
  std::vector<Row> rows() const;
  std::vector<TrafficLine> traffic_lines() const;
  bool all_verified() const { return all_verified_; }
  /// Checked tensors (of all ranks) whose elements cost the reference more than its budget: their
  /// results were not compared, only what was exchanged.
  std::int64_t not_compared() const { return not_compared_; }
  /// Cells that were measured, of those that ran.
  int measured() const { return measured_; }
  /// Rows whose quietest attempt was noisy.
  int noisy() const { return noisy_; }

 private:
  /// A cell, what it runs on, and what came of it.
  struct Entry {
    const Cell* cell = nullptr;
    BoundCase* bound = nullptr;
    CellResult result;
    std::string timed_fault;
    bool timed = false;
  };

  std::vector<const Cell*> cells_like(const Cell& cell, bool same_phase) const;
  void load(const Cell& cell);
  void verify_all();
  void run_group(const Cell& cell);
  Entry enter(const Cell& cell);
  void time_group(std::vector<Entry>& entries);
  void add_hollow(std::vector<Entry>& entries, std::vector<Contestant>& contestants);
  void complete(Entry& entry, const Measurement& measurement);
  void tell_utilisation(const Entry& entry, const std::vector<Row>& parts);
  void add_overlap_figures(Entry& entry, double hollow_us);
  void finish(Entry& entry);
  void set_activity(std::string text);
  void beat() {
    if (watchdog_) watchdog_->beat();
  }

  RunContext context_;
  Streams streams_;
  CaseContext case_context_;
  HostClocks clocks_;
  CommonStart start_;
  NoiseMeter noise_;
  PortMeter ports_;
  std::uint64_t seed_;  // of orders; the same on all ranks
  Watchdog* watchdog_ = nullptr;
  std::vector<const Cell*> selected_;
  std::unique_ptr<LoadedCase> loaded_;
  std::vector<std::unique_ptr<BoundCase>> bound_;
  std::map<std::string, std::deque<CellResult>> results_;  // measured, not yet asked for
  std::map<std::string, int> times_run_;
  std::map<std::string, double> medians_;                   // by cell id, us
  std::vector<std::pair<const Cell*, Row>> rows_;           // of the plan, in the run's order
  std::vector<std::pair<const Cell*, TrafficLine>> lines_;  // by the first cell of a binding
  bool all_verified_ = true;
  std::int64_t not_compared_ = 0;
  int measured_ = 0, noisy_ = 0;
  mutable std::mutex activity_mutex_;  // the watchdog's thread reads
  std::string activity_;
};

}  // namespace weft
