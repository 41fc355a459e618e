// What one iteration of a bound program moves, counted where it was posted.
#pragma once

#include "bench/executor.hpp"
#include "transports/flow.hpp"

namespace weft {

/// Of one iteration. `logical` and `bus` belong to the rank that has most (max over ranks): the
/// pattern's own bytes M, and M times the operation's bus factor (all_reduce 2(n-1)/n; all_gather,
/// reduce_scatter (n-1)/n; broadcast, send 1; all_to_all_v: the larger of sent and received
/// off-rank). Run-time counts are those of the last iteration.
struct IterationTraffic {
  double logical = 0, bus = 0;
  std::int64_t operations = 0;  // communication steps of the rank that has most
  FlowLedger ledger;            // of all ranks; empty where the transport does not see its messages
  bool recorded = false;
  double wire_sent_max = 0;  // payload bytes of the rank that sends most
};

/// Collective; does one serial iteration.
IterationTraffic account_iteration(Execution& execution, Session& session, Bootstrap& bootstrap);

/// Copies per second of all ranks at once, GB/s per rank, buffers above the last-level cache: the
/// machine's own limit for a load/store wire. Collective; about 0.1 s.
double measure_copy_limit(Bootstrap& bootstrap, Bytes last_level_cache);

/// Cost of reading the clock, ns.
double measure_timer_cost();

}  // namespace weft
