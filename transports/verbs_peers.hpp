// The connections of a rank to those that it has to do with. Private to verbs*.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/buffer.hpp"
#include "transports/bootstrap.hpp"
#include "transports/communicator.hpp"
#include "transports/verbs_control.hpp"
#include "transports/verbs_queue.hpp"

namespace weft {

/// A rank as the others see it.
struct VerbsPeer {
  VerbsPath path;
  std::uint64_t control = 0;
  std::uint32_t control_key = 0;
  std::uint64_t arena = 0;
  std::uint32_t arena_key = 0;
  std::string device;  // "rxe0:1"
};

class VerbsPeers {
 public:
  /// Collective. Opens the device; nobody is connected yet. Throws Error(usage) on all ranks.
  VerbsPeers(Bootstrap& bootstrap, const VerbsOptions& options);

  /// Collective: makes `options.queue_pairs` queue pairs to each of these ranks that has none yet,
  /// and connects them. Of two ranks each names the other, or neither does.
  void connect(Bootstrap& bootstrap, std::span<const Rank> peers);
  const std::vector<Rank>& connected() const { return connected_; }
  /// Collective: registers the first `used` bytes of the arena and tells the others.
  void share(Bootstrap& bootstrap, Arena& arena, Bytes used);

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  int queue_pairs() const { return options_.queue_pairs; }
  const VerbsDevice& device() const { return *device_; }
  ibv_cq* completions() const { return completions_.get(); }
  const VerbsPeer& peer(Rank rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  VerbsControl& control() { return *control_; }
  std::uint32_t arena_key() const { return arena_memory_->keys->lkey; }

  VerbsQueue& queue(Rank peer, int index) { return *queues_[index_of(peer, index)]; }
  VerbsQueue& queue(std::uint32_t index) { return *queues_[index]; }
  /// Those to a peer, which stay where they are; null before it is connected.
  const std::unique_ptr<VerbsQueue>* queues(Rank peer) const { return &queues_[index_of(peer, 0)]; }
  std::uint32_t number_of(Rank peer, int index) const {
    return static_cast<std::uint32_t>(index_of(peer, index));
  }
  /// Peer and index of a queue by its place among all.
  Rank peer_of(std::uint32_t queue) const {
    const auto rank = static_cast<Rank>(queue);
    return options_.queue_pairs == 1 ? rank : rank / options_.queue_pairs;
  }
  int ordinal_of(std::uint32_t queue) const {
    return static_cast<int>(queue) % options_.queue_pairs;
  }

  /// "queue pair 0x11 of rank 0 on vm0 (rxe0:1, 10.0.2.10) to queue pair 0x12 of rank 1 on vm1
  /// (rxe0:1, 10.0.2.11), UDP source port 0xc121"
  std::string describe(std::uint32_t queue) const;
  const std::string& host(Rank rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  std::vector<QueuePairFacts> facts() const;

 private:
  std::size_t index_of(Rank peer, int index) const {
    return static_cast<std::size_t>(peer) * static_cast<std::size_t>(options_.queue_pairs) +
           static_cast<std::size_t>(index);
  }
  QueueDepths depths_for(int ranks) const;
  void make_completions();
  void introduce(Bootstrap& bootstrap);
  void make_queues(std::span<const Rank> fresh);
  void exchange_addresses(Bootstrap& bootstrap, std::span<const Rank> fresh);

  VerbsOptions options_;
  Rank rank_;
  std::vector<std::string> hosts_;
  std::shared_ptr<VerbsDevice> device_;
  std::vector<VerbsPeer> peers_;
  std::unique_ptr<VerbsControl> control_;
  VerbsCompletions completions_;
  std::shared_ptr<RegisteredMemory> arena_memory_;
  QueueDepths depths_;
  std::vector<Rank> connected_;                      // ascending
  std::vector<std::unique_ptr<VerbsQueue>> queues_;  // of connected ranks
  std::vector<QueueAddress> remote_;                 // of the peers' queues to this rank
};

}  // namespace weft
