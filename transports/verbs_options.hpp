// What can be said of the verbs wire on a command line. No libibverbs here: every build has these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "patterns/types.hpp"

namespace weft {

enum class QueuePairMode : std::uint8_t {
  round_robin,  // message after message, each on the next queue pair
  split,        // each message on all of them, in parts of at least a packet
};
std::string_view to_string(QueuePairMode mode);

enum class SignalMode : std::uint8_t {
  immediate,  // a WRITE WITH IMMEDIATE tells the receiver by its completion queue
  write,      // a WRITE into a word that the receiver polls; one queue pair a peer
};
std::string_view to_string(SignalMode mode);

inline constexpr int kMostVerbsQueuePairs = 16;  // a peer

struct VerbsOptions {
  std::string device;  // "mlx5_0" or "mlx5_0:2" (port); empty: the nearest to the rank
  int gid_index = -1;  // -1: chosen by itself, RoCE v2 over IPv4 first
  int queue_pairs = 1;
  QueuePairMode mode = QueuePairMode::round_robin;
  SignalMode signal = SignalMode::immediate;
  Bytes eager = 8192;  // messages up to this size wait at the receiver, without a credit for them
  Bytes path_mtu = 0;  // 0: the largest that both ports have
  int service_level = 0;
  int traffic_class = 0;         // the IP header's byte: DSCP times 4, and ECN
  std::uint32_t flow_label = 0;  // 0: the driver's
  int timeout = 14;              // exponent: 4.096 us * 2^timeout until a packet is sent again
  int retries = 7, rnr_retries = 7;
  int udp_source_port = 0;  // of the first queue pair, the next ones follow; 0: the driver's
};

}  // namespace weft
