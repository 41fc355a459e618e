// Queue pairs of a session, each direction as a flow that a switch hashes, with what was sent since
// it was made. In every build: other wires have none.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "transports/bootstrap.hpp"

namespace weft {

/// Counted since a queue pair was made.
struct QueuePairTraffic {
  std::int64_t messages = 0;  // work requests: data, signals, credits
  Bytes payload = 0;          // the patterns' own bytes
  Bytes posted = 0;           // all bytes: payload, envelopes, credits
  std::int64_t packets = 0;   // of these work requests, without acknowledgements and repetitions
  Bytes frame_bytes = 0;      // of these packets on an Ethernet cable; 0: another link

  QueuePairTraffic& operator+=(const QueuePairTraffic& more) {
    messages += more.messages;
    payload += more.payload;
    posted += more.posted;
    packets += more.packets;
    frame_bytes += more.frame_bytes;
    return *this;
  }
};

/// What one rank sends on one queue pair.
struct QueuePairFacts {
  Rank rank = 0, peer = 0;
  int index = 0;  // of the queue pairs to this peer
  std::string device;
  std::string address, peer_address;  // of the GIDs: IPv4 where they are mapped ones
  std::uint32_t number = 0, peer_number = 0;
  int udp_source_port = 0;  // 0: no RoCEv2, or unknown
  Bytes path_mtu = 0;
  QueuePairTraffic sent;  // by this end: its WRITEs, and one packet for each READ
  /// By the peer's end in answer to this end's READs, of which it knows nothing. `messages`: READs.
  QueuePairTraffic read;
};

/// By rank, peer, index.
using QueuePairs = std::map<std::tuple<Rank, Rank, int>, QueuePairFacts>;

/// Those of all ranks, each with all that it sends: answers to a peer's READs are in its `sent`.
/// Collective.
QueuePairs gather_queue_pairs(const std::vector<QueuePairFacts>& mine, Bootstrap& bootstrap);

}  // namespace weft
