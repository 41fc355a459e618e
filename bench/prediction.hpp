// What a communication step would send under a named algorithm, from its schedule, without running
// it: for transports that do not show their messages, and for what a step needs of a network.
#pragma once

#include <vector>

#include "bench/executor.hpp"
#include "bench/services.hpp"
#include "transports/schedule.hpp"

namespace weft {

/// Named where a transport does not tell its algorithm.
inline constexpr std::string_view kPredictedAlgorithm = "ring";

struct PredictedStep {
  std::vector<Message> messages;  // that this rank posts; without times
  StepDemand demand;              // of this rank; `signalled` is left false
};

/// Expands the schedule of `algorithm` for this rank. An all_to_all_v goes directly from each rank
/// to each, whatever the algorithm, with the counts of the last iteration where they are known at
/// run time only; messages between two ranks go as they are. `hosts`: host index of each rank.
PredictedStep predict(const BoundCommunication& step, const Algorithm& algorithm,
                      const std::vector<int>& hosts);

/// Bytes that this step sends to each member of its group (itself included), all_to_all_v only.
std::vector<double> all_to_all_sent(const BoundCommunication& step);
std::vector<double> all_to_all_received(const BoundCommunication& step);

}  // namespace weft
