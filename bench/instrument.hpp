// A few iterations in which every step and every message is timed: what bursts, concurrency and the
// trace are made of. Samples never come from them: two clock readings a step and a message cost
// time.
#pragma once

#include <functional>
#include <vector>

#include "bench/clock_sync.hpp"
#include "bench/executor.hpp"

namespace weft {

/// All ranks, all times us of one clock.
struct InstrumentedIteration {
  double begin_us = 0, end_us = 0;           // first start and last end of all ranks
  std::vector<Message> messages;             // by rank, in the order they were posted
  std::vector<std::vector<StepSpan>> spans;  // by rank
};

/// How many are worth it: enough for the widest windows of bursts, few enough to be quick and to
/// fit into memory. `typical_us`: of one iteration; `messages` of one. At least 1.
int iterations_to_instrument(double typical_us, std::int64_t messages);

/// Collective; `to_reference` takes this rank's clock to the one that all share, `progress` is
/// called after each iteration. Leaves the recorder off and empty.
std::vector<InstrumentedIteration> instrument(Execution& execution, Session& session,
                                              Bootstrap& bootstrap, CommonStart& start, Phase phase,
                                              int iterations,
                                              const std::function<double(double)>& to_reference,
                                              const std::function<void()>& progress);

}  // namespace weft
