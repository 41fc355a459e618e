#include "bench/ecmp.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::uint32_t kFirstQueuePair = 0x11;   // the numbers below are the system's own
constexpr std::uint32_t kNetwork = 10u << 24;     // 10.0.0.0/8
constexpr int kSeeds = 400;                       // the mean is then known to about 1%
constexpr std::size_t kSpreadBudget = 4'000'000;  // draws: many flows need few seeds
constexpr int kFewestSeeds = 10;
constexpr std::size_t kTupleBytes = 13;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr std::pair<EcmpHash, std::string_view> kHashes[] = {{EcmpHash::ideal, "ideal"},
                                                             {EcmpHash::crc32, "crc32"},
                                                             {EcmpHash::toeplitz, "toeplitz"},
                                                             {EcmpHash::xor_fold, "xor"}};

// The key of Microsoft's receive-side scaling, which NICs and switches have as their default.
constexpr std::array<std::uint8_t, 40> kToeplitzKey = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/// Addresses, ports, protocol in network order; the protocol last, so that the first 12 bytes are
/// what receive-side scaling hashes.
std::array<std::uint8_t, kTupleBytes> wire_order(const FiveTuple& t) {
  std::array<std::uint8_t, kTupleBytes> bytes{};
  for (int i = 0; i < 4; ++i) {
    bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(t.source >> (24 - 8 * i));
    bytes[static_cast<std::size_t>(4 + i)] =
        static_cast<std::uint8_t>(t.destination >> (24 - 8 * i));
  }
  for (int i = 0; i < 2; ++i) {
    bytes[static_cast<std::size_t>(8 + i)] =
        static_cast<std::uint8_t>(t.source_port >> (8 - 8 * i));
    bytes[static_cast<std::size_t>(10 + i)] =
        static_cast<std::uint8_t>(t.destination_port >> (8 - 8 * i));
  }
  bytes[12] = t.protocol;
  return bytes;
}

/// Mixes a counter into bits that pass for random (the finaliser of splitmix64).
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::uint32_t xor_fold(const FiveTuple& t) {
  return (t.source >> 16 ^ t.source ^ t.destination >> 16 ^ t.destination ^ t.source_port ^
          t.destination_port ^ t.protocol) &
         0xFFFF;
}

/// One end of a connection: the number of its queue pair is its place in the order of this key.
struct End {
  Rank rank, peer;
  std::uint16_t channel;
  int queue_pair;
  auto operator<=>(const End&) const = default;
};

/// Queue pair numbers of all ends, host by host. A queue pair serves both directions.
std::map<End, std::uint32_t> number_queue_pairs(const std::vector<Flow>& flows,
                                                const std::vector<int>& hosts, int queue_pairs) {
  std::set<End> ends;
  for (const Flow& flow : flows) {
    for (int q = 0; q < queue_pairs; ++q) {
      ends.insert({flow.source, flow.destination, flow.channel, q});
      ends.insert({flow.destination, flow.source, flow.channel, q});
    }
  }
  std::map<int, std::uint32_t> next;
  std::map<End, std::uint32_t> numbers;
  for (const End& end : ends) {
    std::uint32_t& number =
        next.try_emplace(hosts.at(static_cast<std::size_t>(end.rank)), kFirstQueuePair)
            .first->second;
    numbers.emplace(end, number++ & 0xFFFFFF);
  }
  return numbers;
}

std::vector<double> loads_of(const std::vector<FiveTuple>& tuples, EcmpHash hash, int paths,
                             std::uint64_t seed) {
  std::vector<double> loads(static_cast<std::size_t>(paths), 0.0);
  for (std::size_t i = 0; i < tuples.size(); ++i) {
    // An ideal hash takes no heed of what the tuple is, only of which one it is.
    const std::uint32_t value = hash == EcmpHash::ideal
                                    ? static_cast<std::uint32_t>(mixed(mixed(seed) + i) >> 32)
                                    : hash_of(tuples[i], hash, seed);
    loads[value % static_cast<std::uint32_t>(paths)] += tuples[i].bytes;
  }
  return loads;
}

}  // namespace

std::string_view to_string(EcmpHash hash) {
  for (const auto& [known, name] : kHashes) {
    if (known == hash) return name;
  }
  return "?";
}

EcmpHash find_ecmp_hash(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [hash, known] : kHashes) {
    if (known == name) return hash;
    names.push_back(known);
  }
  fail_usage(
      fmt::format("--ecmp-hash '{}' is unknown; there are {}", name, fmt::join(names, ", ")));
}

std::vector<FiveTuple> five_tuples(const std::vector<Flow>& flows, const std::vector<int>& hosts,
                                   int queue_pairs) {
  const std::vector<Flow> counted = network_flows(flows);
  const auto numbers = number_queue_pairs(counted, hosts, queue_pairs);
  const auto address = [&](Rank rank) {
    return kNetwork + static_cast<std::uint32_t>(hosts.at(static_cast<std::size_t>(rank))) + 1;
  };
  std::vector<FiveTuple> tuples;
  for (const Flow& flow : counted) {
    for (int q = 0; q < queue_pairs; ++q) {
      FiveTuple& tuple = tuples.emplace_back();
      tuple.source = address(flow.source);
      tuple.destination = address(flow.destination);
      tuple.source_port =
          roce_source_port(numbers.at({flow.source, flow.destination, flow.channel, q}),
                           numbers.at({flow.destination, flow.source, flow.channel, q}));
      tuple.destination_port = kRocePort;
      tuple.bytes = static_cast<double>(flow.bytes) / queue_pairs;
    }
  }
  return tuples;
}

std::vector<FiveTuple> five_tuples(const std::vector<Flow>& flows, const QueuePairs& pairs) {
  std::vector<FiveTuple> tuples;
  for (const Flow& flow : network_flows(flows)) {
    const auto found = pairs.find({flow.source, flow.destination, flow.channel});
    if (found == pairs.end() || found->second.udp_source_port == 0) return {};
    in_addr source{}, destination{};
    if (inet_pton(AF_INET, found->second.address.c_str(), &source) != 1) return {};
    if (inet_pton(AF_INET, found->second.peer_address.c_str(), &destination) != 1) return {};
    FiveTuple& tuple = tuples.emplace_back();
    tuple.source = ntohl(source.s_addr);
    tuple.destination = ntohl(destination.s_addr);
    tuple.source_port = static_cast<std::uint16_t>(found->second.udp_source_port);
    tuple.destination_port = kRocePort;
    tuple.bytes = static_cast<double>(flow.bytes);
  }
  return tuples;
}

std::uint32_t crc32(const std::uint8_t* data, std::size_t size) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (std::size_t i = 0; i < size; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

std::uint32_t toeplitz(const std::uint8_t* data, std::size_t size) {
  std::uint32_t window = std::uint32_t{kToeplitzKey[0]} << 24 |
                         std::uint32_t{kToeplitzKey[1]} << 16 |
                         std::uint32_t{kToeplitzKey[2]} << 8 | kToeplitzKey[3];
  std::uint32_t hash = 0;
  for (std::size_t i = 0; i < size; ++i) {
    for (int bit = 7; bit >= 0; --bit) {
      if (data[i] >> bit & 1) hash ^= window;
      window = window << 1 | (kToeplitzKey[i + 4] >> bit & 1);
    }
  }
  return hash;
}

std::uint32_t hash_of(const FiveTuple& tuple, EcmpHash hash, std::uint64_t seed) {
  const auto bytes = wire_order(tuple);
  switch (hash) {
    case EcmpHash::crc32:
      return crc32(bytes.data(), kTupleBytes);
    case EcmpHash::toeplitz:
      return toeplitz(bytes.data(), kTupleBytes - 1);
    case EcmpHash::xor_fold:
      return xor_fold(tuple);
    case EcmpHash::ideal:
      break;
  }
  return static_cast<std::uint32_t>(mixed(mixed(seed) + crc32(bytes.data(), kTupleBytes)) >> 32);
}

PathSpread spread_over(const std::vector<FiveTuple>& tuples, EcmpHash hash, int paths) {
  PathSpread spread{kNaN, kNaN, {}};
  double total = 0;
  for (const FiveTuple& tuple : tuples) total += tuple.bytes;
  if (total <= 0 || paths < 1) return spread;
  const int seeds =
      hash == EcmpHash::ideal
          ? std::clamp(static_cast<int>(kSpreadBudget / tuples.size()), kFewestSeeds, kSeeds)
          : 1;
  double max_sum = 0, entropy_sum = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    std::vector<double> loads = loads_of(tuples, hash, paths, static_cast<std::uint64_t>(seed));
    max_sum += *std::ranges::max_element(loads) * paths / total;
    entropy_sum += entropy_bits(loads);
    if (seed == 0) spread.loads = std::move(loads);
  }
  spread.max_mean = max_sum / seeds;
  if (paths >= 2) spread.entropy = entropy_sum / seeds / std::log2(paths);
  return spread;
}

}  // namespace weft
