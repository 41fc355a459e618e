// Runs the cells of a plan: builds what a cell needs (kept while the next cell can use it),
// verifies, accounts, measures, writes the row. One way for every pattern, transport and phase.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/accounting.hpp"
#include "bench/measure.hpp"
#include "bench/plan.hpp"
#include "bench/row_writer.hpp"
#include "bench/traffic_sheet.hpp"
#include "bench/verify.hpp"
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
  std::string binding;
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
  explicit Runner(const RunContext& context);
  ~Runner();

  /// Collective. Throws Error only where the run cannot go on; what concerns one cell is in its
  /// result.
  CellResult run(const Cell& cell);

  /// What is being done, for the watchdog ("cell ..., step ...").
  std::string activity() const;
  void set_watchdog(Watchdog* watchdog) { watchdog_ = watchdog; }

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<TrafficLine>& traffic_lines() const { return lines_; }
  bool all_verified() const { return all_verified_; }
  /// Checked tensors (of all ranks) whose elements cost the reference more than its budget: their
  /// results were not compared, only what was exchanged.
  std::int64_t not_compared() const { return not_compared_; }
  /// Cells that were measured, of those that ran.
  int measured() const { return measured_; }

 private:
  struct Loaded;  // of one case
  struct Bound;   // of one (case, transport, algorithm)

  void load(const Cell& cell);
  void load_case(std::size_t index);
  void bind(const Cell& cell);
  void check_memory(Bytes mine) const;
  void verify_bound(const Cell& cell);
  void account_bound(const Cell& cell);
  Measurement measure_cell(const Cell& cell);
  CellResult finish(const Cell& cell, CellResult result);
  void beat() {
    if (watchdog_) watchdog_->beat();
  }

  RunContext context_;
  CommonStart start_;
  Watchdog* watchdog_ = nullptr;
  std::unique_ptr<Loaded> loaded_;
  std::unique_ptr<Bound> bound_;
  std::map<std::string, int> times_run_;
  std::vector<Row> rows_;
  std::vector<TrafficLine> lines_;
  bool all_verified_ = true;
  std::int64_t not_compared_ = 0;
  int measured_ = 0;
  std::string activity_;
};

}  // namespace weft
