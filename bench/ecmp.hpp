// How flows spread over equal-cost paths: what the entropy of traffic is for. A switch hashes the
// 5-tuple of a packet and takes the path hash mod N, so a flow stays on one path.
//
//   const auto tuples = five_tuples(flows, hosts, /*queue_pairs=*/1);
//   const PathSpread spread = spread_over(tuples, EcmpHash::crc32, 8);
//
// The 5-tuples are those of RoCEv2 between hosts with one port each: address 10.x.y.z by host
// index, destination port 4791, and the source port that drivers derive from the queue pairs'
// numbers. Wires without ports are given the same ones: queue pairs numbered from 0x11 on at each
// host, in the order of (rank, peer, channel, queue pair), as a NIC that was just started does.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "transports/flow.hpp"
#include "transports/queue_pair_facts.hpp"
#include "transports/roce.hpp"

namespace weft {

enum class EcmpHash : std::uint8_t {
  ideal,     // each flow goes to a random path: the mean over many seeds
  crc32,     // IEEE 802.3, over addresses, protocol and ports in network order
  toeplitz,  // with the key of Microsoft's RSS, over addresses and ports
  xor_fold,  // exclusive or of all 16-bit words of the 5-tuple
};
std::string_view to_string(EcmpHash hash);
/// "ideal", "crc32", "toeplitz", "xor". Throws Error(usage) naming them.
EcmpHash find_ecmp_hash(std::string_view name);

struct FiveTuple {
  std::uint32_t source = 0, destination = 0;  // IPv4, host byte order
  std::uint16_t source_port = 0, destination_port = 0;
  std::uint8_t protocol = 17;
  double bytes = 0;  // what it carries
};

/// Flows of payload as 5-tuples; each flow's bytes are spread evenly over `queue_pairs`. `hosts`:
/// host index of each rank. A flow inside a host has no 5-tuple on a cable: give each rank a host
/// of its own to see how it would spread.
std::vector<FiveTuple> five_tuples(const std::vector<Flow>& flows, const std::vector<int>& hosts,
                                   int queue_pairs);

/// Flows on queue pairs that are known: their real addresses and ports. Empty if one of them has no
/// IPv4 address, or a port that its driver keeps to itself.
std::vector<FiveTuple> five_tuples(const std::vector<Flow>& flows, const QueuePairs& pairs);

std::uint32_t hash_of(const FiveTuple& tuple, EcmpHash hash, std::uint64_t seed);

/// Loads of N paths: the busiest path over the mean, and their entropy relative to log2 N (1:
/// even). NaN without bytes; path_entropy NaN below 2 paths. For `ideal`, means over seeds.
struct PathSpread {
  double max_mean = 0, entropy = 0;
  std::vector<double> loads;  // bytes of each path; of the first seed
};
PathSpread spread_over(const std::vector<FiveTuple>& tuples, EcmpHash hash, int paths);

/// Building blocks, with the check values that are published for them.
std::uint32_t crc32(const std::uint8_t* data, std::size_t size);
std::uint32_t toeplitz(const std::uint8_t* data, std::size_t size);  // at most 36 bytes

}  // namespace weft
