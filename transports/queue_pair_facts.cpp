#include "transports/queue_pair_facts.hpp"

#include <nlohmann/json.hpp>

namespace weft {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(QueuePairTraffic, messages, payload, posted, packets,
                                   frame_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(QueuePairFacts, rank, peer, index, device, address, peer_address,
                                   number, peer_number, udp_source_port, path_mtu, sent, read)

QueuePairs gather_queue_pairs(const std::vector<QueuePairFacts>& mine, Bootstrap& bootstrap) {
  QueuePairs all;
  for (const std::string& text : bootstrap.all_gather(nlohmann::json(mine).dump())) {
    for (const auto& facts : nlohmann::json::parse(text).get<std::vector<QueuePairFacts>>()) {
      all[{facts.rank, facts.peer, facts.index}] = facts;
    }
  }
  for (const auto& [key, reader] : all) {
    const auto answers = all.find({reader.peer, reader.rank, reader.index});
    if (answers == all.end()) continue;
    QueuePairTraffic& sent = answers->second.sent;
    sent.payload += reader.read.payload;
    sent.posted += reader.read.posted;
    sent.packets += reader.read.packets;
    sent.frame_bytes += reader.read.frame_bytes;
  }
  return all;
}

}  // namespace weft
