// The memory of all ranks of a host, as one of them sees it: mapped once, verified by tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/buffer.hpp"
#include "transports/bootstrap.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

/// Memory of one rank.
struct ShmPeer {
  std::shared_ptr<SharedMapping> flags;
  std::unique_ptr<SharedMapping> arena_mapping;  // none for this rank's own, and in one process
  std::byte* arena = nullptr;
};

class ShmPeers {
 public:
  /// Collective. Each rank makes `flags_bytes` of zeros, touched by itself first (so that they lie
  /// on its memory node), and shows them and its arena to the others. Throws Error(usage) on all
  /// ranks where the system refuses.
  ShmPeers(Bootstrap& bootstrap, Arena& arena, Bytes flags_bytes);

  Rank rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  std::byte* arena(Rank rank) const { return peers_[static_cast<std::size_t>(rank)].arena; }
  /// The flags of a rank, flags_bytes of them.
  std::byte* flags(Rank rank) const;
  const std::string& host(Rank rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

 private:
  struct Announcement;

  static std::vector<Announcement> announce(Bootstrap& bootstrap, const Announcement& mine);
  void attach(const std::vector<Announcement>& announced,
              const std::vector<std::vector<Descriptor>>& descriptors, Bytes flags_bytes);
  void map(const std::vector<Descriptor>& fds, const Announcement& announced, Rank from,
           Bytes flags_bytes);
  void verify(const Announcement& announced, Rank from) const;

  Rank rank_;
  std::vector<std::string> hosts_;
  std::vector<ShmPeer> peers_;
};

}  // namespace weft
