// Rows of weft-pairs.
#pragma once

#include <string>

#include "bench/noise.hpp"
#include "bench/pair_options.hpp"
#include "bench/pair_trial.hpp"
#include "bench/port_columns.hpp"
#include "bench/run_frame.hpp"

namespace weft {

/// What all rows of a run share.
struct PairRowContext {
  const PairOptions& options;
  const Bootstrap& bootstrap;
  const CpuShare& cpus;
  const std::string& launch_id;
  double copy_limit_GBps = 0;
};

/// One test of one ordered pair over one transport.
struct PairCell {
  const TransportInfo& transport;
  PairTest test;
  const PairShape& shape;
  int round = 1;
  Rank from = 0, to = 0;

  std::string id(int world) const;  // the same in all rounds and launches
};

/// Without a result: which cell and where.
Row pair_row(const PairRowContext& context, const PairCell& cell);
/// How a test was measured.
struct PairAttempt {
  Noise noise{};
  int attempts = 1;
  PortRecord ports{};  // of all pairs that were measured at the same time
  std::size_t pairs = 1;
};
/// Times, rates and counters, or why there are none.
void add_result(Row& row, const PairRowContext& context, const PairCell& cell,
                const PairResult& result, const PairAttempt& attempt);

}  // namespace weft
