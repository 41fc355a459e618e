// What a person sees at the end: the traffic sheet (a line per pattern x dimension x direction) and
// the summary of times.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"
#include "patterns/pattern.hpp"
#include "transports/flow.hpp"

namespace weft {

/// One line of the sheet. Blank where unknown.
struct TrafficLine {
  std::string pattern, dimension, direction, transport, algorithm;
  std::string who;              // "each of 4 ranks -> 3 peers", "rank r -> r+1"
  std::string network;          // scale_up | scale_out
  std::string collective;       // "all_gather x1"
  std::int64_t operations = 0;  // per iteration, of one rank
  Bytes bytes_per_operation = 0;
  double flows_per_sender = 0;
  Bytes flow_p50 = 0, flow_max = 0;
  std::int64_t packets = 0;  // per iteration, at the MTU, data direction
  std::string packet_sizes;  // "4096 x 512, 64 x 3"
  int fan_in = 0;
  double effective_flows[3] = {0, 0, 0};  // at 1, 4, 16 queue pairs a peer
  double hidden_share = 0;                // NaN: unknown
  double utilisation = 0;                 // NaN: unknown
  std::string needs;                      // "reliable, ordered"
  std::string flow_source;                // recorded | predicted
};

/// Table for a terminal: short heads with units, and two lines that explain them.
std::string traffic_sheet(const std::vector<TrafficLine>& lines, Bytes mtu);

/// Times per cell, fastest transport marked, in words a newcomer understands: what each phase is,
/// which row is how fast, what was not run and why, whether all was verified, where the files are.
std::string summary(const std::vector<Row>& rows, const std::vector<std::string>& files);

}  // namespace weft
