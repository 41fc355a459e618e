// What one iteration of a bound program moves, counted where it was posted; or predicted where the
// transport does not show it.
#pragma once

#include <map>

#include "bench/executor.hpp"
#include "bench/services.hpp"
#include "transports/flow.hpp"
#include "transports/queue_pair_facts.hpp"

namespace weft {

/// The operations of one dimension, as the pattern asks for them.
struct OperationFigures {
  std::int64_t count = 0;  // of the rank that has most
  SizeHistogram bytes;     // logical bytes of each operation of each rank, of more than zero
  ServiceNeeds needs;
};

/// Of one iteration. `logical` and `bus` belong to the rank that has most (max over ranks): the
/// pattern's own bytes M, and M times the operation's bus factor (all_reduce 2(n-1)/n; all_gather,
/// reduce_scatter (n-1)/n; broadcast, send 1; all_to_all_v: the larger of sent and received
/// off-rank). Run-time counts are those of the last iteration.
struct IterationTraffic {
  double logical = 0, bus = 0;
  std::int64_t operations = 0;  // communication steps of the rank that has most
  std::map<Dimension, OperationFigures> by_dimension;
  FlowLedger ledger;        // of all ranks
  std::string flow_source;  // "recorded": posted by us; "predicted": of a named algorithm
  bool recorded = false;
  QueuePairs queue_pairs;    // of all ranks; empty where the transport has none
  double wire_sent_max = 0;  // payload bytes of the rank that sends most; 0 unless recorded

  ServiceNeeds needs() const;
  SizeHistogram operation_bytes() const;
};

/// Collective; does one serial iteration. `algorithm` names the schedules that the transport runs:
/// they tell what its steps need. Where it names none, those of `direct` stand in; where the
/// transport does not show its messages, those of kPredictedAlgorithm do, for the messages too.
IterationTraffic account_iteration(Execution& execution, Session& session, Bootstrap& bootstrap,
                                   std::string_view algorithm = {});

/// Copies per second of all ranks at once, GB/s per rank, buffers above the last-level cache: the
/// machine's own limit for a load/store wire. Collective; about 0.1 s.
double measure_copy_limit(Bootstrap& bootstrap, Bytes last_level_cache);

/// Cost of reading the clock, ns.
double measure_timer_cost();

}  // namespace weft
