// The traffic half of a row: of a whole cell, and of one dimension over one network.
#pragma once

#include <string_view>
#include <vector>

#include "bench/accounting.hpp"
#include "bench/burst.hpp"
#include "bench/link_use.hpp"
#include "bench/options.hpp"
#include "bench/row.hpp"

namespace weft {

/// What figures are made of: a cell's traffic or a part of it.
struct TrafficPart {
  FlowLedger ledger;
  QueuePairs queue_pairs;  // that the flows' channels are, where known
  std::int64_t operations = 0;
  SizeHistogram operation_bytes;
  ServiceNeeds needs;
  Timeline timeline;  // not timed: no figures of frequency
  std::string_view flow_source;
  bool recorded = false;
};
TrafficPart whole_of(const IterationTraffic& traffic, const Timeline& timeline);
/// Operations are the dimension's, whatever networks their bytes take.
TrafficPart part_of(const IterationTraffic& traffic, const Timeline& timeline, Dimension dim,
                    Network network);

struct TrafficSetting {
  const Options& options;
  std::vector<int> hosts;  // host index of each rank, virtual ones included
  LinkRates rates;
  double time_us = 0;  // of an iteration, for link utilisation; NaN: unknown
};

/// Operations, messages, packets, flows, entropy, paths, frequency, services, link utilisation.
/// What is unknown, or has no meaning without traffic, stays blank.
void add_traffic_columns(Row& row, const TrafficPart& part, const TrafficSetting& setting);

}  // namespace weft
