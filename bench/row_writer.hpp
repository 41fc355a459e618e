// Files of a run: rows as CSV and JSON, flows, samples, provenance, status. Rank 0 writes; a row is
// on disk when its cell ends, so a killed job keeps what it measured.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "transports/flow.hpp"
#include "transports/queue_pair_facts.hpp"

namespace weft {

struct TracedCell;  // bench/trace_writer.hpp

struct OutputPaths {
  std::string csv{}, json{}, flows{}, queue_pairs{}, samples{}, traffic{},
      trace{};  // empty: not written
};

/// Opens all files before anything is measured. Throws Error(usage): cannot write (path, reason,
/// remedy), or an existing CSV whose header is another schema's. An existing CSV of this schema is
/// appended to (a last line without newline is closed first); each row is one write(2) under flock,
/// so concurrent runs do not shred one file. JSON, flows and samples files are replaced... only
/// flows and samples of this launch are in them.
class RowWriter {
 public:
  RowWriter(const OutputPaths& paths, const std::string& launch_id,
            const std::string& provenance_json);
  ~RowWriter();
  RowWriter(const RowWriter&) = delete;
  RowWriter& operator=(const RowWriter&) = delete;

  /// Appends the row to the CSV and to the JSON (which is a complete document after each row).
  /// Throws Error(failed) when the disk is full, naming file and reason.
  void write(const Row& row);
  struct FlowTable {
    const std::vector<Flow>& flows;
    const std::vector<std::string>& hosts;
    std::string_view source;
    const QueuePairs& queue_pairs;  // the 5-tuples of flows on them
  };
  /// One line a flow: columns as results/SCHEMA.md lists them; addresses, port and queue pair
  /// numbers are blank where the transport has none.
  void write_flows(const std::string& cell_id, const FlowTable& table);
  /// One line a queue pair and direction: what was sent on it since it was made.
  void write_queue_pairs(const std::string& cell_id, const QueuePairs& pairs,
                         const std::vector<std::string>& hosts);
  /// One line a sample and rank: launch_id, cell_id, iteration, rank, start_us, end_us, valid,
  /// attempt.
  struct Sample {
    std::int64_t iteration = 0;
    Rank rank = 0;
    double start_us = 0, end_us = 0;
    bool valid = true;
    int attempt = 1;  // of a noisy cell that was measured again
  };
  void write_samples(const std::string& cell_id, const std::vector<Sample>& samples);
  /// One line a dimension and network: the columns of traffic_file_columns().
  void write_traffic(const Row& part);
  void write_trace(const TracedCell& cell);
  int rows() const;
  /// `before` is called before a row is written, and may never return; `told` gets the number of
  /// rows each time one is on disk.
  void on_row(std::function<void()> before, std::function<void(int)> told);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `<results>.status.json` beside the rows: {"launch_id", "state":
/// "running"|"complete"|"incomplete", "exit_code", "why", "rows", "started", "ended"}; replaced
/// atomically (rename). One file per launch set: the newest launch wins, scripts read it after
/// mpiexec has ended.
class StatusFile {
 public:
  /// `path` empty: nothing is written.
  StatusFile(std::string path, std::string launch_id);
  void running();
  void finish(int exit_code, const std::string& why, int rows);

 private:
  void write(const std::string& state, const std::string& exit_code, const std::string& why,
             int rows);
  std::string path_, launch_id_;
  // The wall clock is read once: set during a run, it would end the run before its start.
  std::time_t started_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace weft
