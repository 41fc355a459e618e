// Whom a run waits for, in one line.
#pragma once

#include <string>
#include <vector>

#include "bench/progress_board.hpp"

namespace weft {

/// What a real host said when it was asked, or that it did not.
struct HostAnswer {
  std::string host;
  std::vector<Rank> ranks;  // of the launch on it
  bool answered = true;
  std::vector<RankState> states;  // of those that share a board with who answered
};

/// "no progress for 30 s; missing: rank 1 on node7 (stopped; last seen measuring CELL, step 'X');
/// waiting: ranks 0 2-3 (measuring CELL, step 'Y'); REMEDY". Missing are ranks that are dead,
/// stopped, silent or blocked, and hosts without an answer; where there are none of these, the
/// ranks with the fewest beats are named as behind the others.
std::string hang_report(double seconds, const std::vector<HostAnswer>& answers);

/// The same of a rank that gave up by itself: CAUSE, which has its own remedy, in front.
std::string hang_report(const std::string& cause, const std::vector<HostAnswer>& answers);

}  // namespace weft
