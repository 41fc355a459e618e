#include "bench/concurrency.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace weft {
namespace {

/// At equal times messages end before others begin, but an instant message not before itself.
struct Edge {
  double at_us;
  int order;  // 0 end, 1 begin, 2 end of an instant message
  const Message* message;
};

std::vector<Edge> edges_of(const std::vector<Message>& messages) {
  std::vector<Edge> edges;
  for (const Message& message : messages) {
    const bool instant = message.completed_us <= message.posted_us;
    edges.push_back({message.posted_us, 1, &message});
    edges.push_back({std::max(message.posted_us, message.completed_us), instant ? 2 : 0, &message});
  }
  std::ranges::sort(edges, {}, [](const Edge& edge) { return std::tuple(edge.at_us, edge.order); });
  return edges;
}

/// Counts keys that have at least one thing under way.
template <class Key>
class UnderWay {
 public:
  /// How many keys are under way then.
  std::int64_t change(const Key& key, int by) {
    int& now = counts_[key];
    now += by;
    if (by > 0 && now == 1) ++keys_;
    if (by < 0 && now == 0) --keys_;
    return keys_;
  }

 private:
  std::map<Key, int> counts_;
  std::int64_t keys_ = 0;
};

}  // namespace

Concurrency concurrency_of(const Timeline& timeline) {
  Concurrency most;
  if (!timeline.timed) return most;
  UnderWay<std::tuple<Rank, Rank, std::uint16_t>> flows;
  std::map<Rank, UnderWay<Rank>> sources;
  for (const Edge& edge : edges_of(timeline.messages)) {
    const Message& m = *edge.message;
    const int by = edge.order == 1 ? 1 : -1;
    most.flows_max =
        std::max(most.flows_max, flows.change({m.source, m.destination, m.channel}, by));
    most.fan_in_max = std::max(most.fan_in_max, sources[m.destination].change(m.source, by));
  }
  return most;
}

}  // namespace weft
