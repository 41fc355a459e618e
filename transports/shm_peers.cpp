#include "transports/shm_peers.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/shm_sockets.hpp"

namespace weft {
namespace {

constexpr Bytes kTokenBytes = 4096;  // before the flags: a page that proves whose they are

}  // namespace

/// What a rank tells the others before they map its memory.
struct ShmPeers::Announcement {
  Token flags{}, arena{};
  Bytes arena_bytes = 0;
  std::byte* arena_data = nullptr;                                // in one process
  const std::shared_ptr<SharedMapping>* flags_mapping = nullptr;  // in one process
};

ShmPeers::ShmPeers(Bootstrap& bootstrap, Arena& arena, Bytes flags_bytes)
    : rank_(bootstrap.rank()),
      hosts_(bootstrap.hosts()),
      peers_(static_cast<std::size_t>(bootstrap.size())) {
  const Bytes bytes = kTokenBytes + flags_bytes;
  ShmPeer& own = peers_[static_cast<std::size_t>(rank_)];
  Descriptor flags;
  together(bootstrap, [&] {
    flags = make_memfd("weft-flags", bytes);
    own.flags = std::make_shared<SharedMapping>(flags.get(), bytes);
  });
  own.arena = arena.data();
  const Announcement mine{.flags = random_token(),
                          .arena = random_token(),
                          .arena_bytes = arena.size(),
                          .arena_data = arena.data(),
                          .flags_mapping = &own.flags};
  std::memcpy(own.flags->data(), mine.flags.data(), mine.flags.size());
  const TokenPage proof(arena.data(), mine.arena);
  const auto announced = announce(bootstrap, mine);
  std::vector<std::vector<Descriptor>> descriptors;
  if (!bootstrap.in_process()) {
    const std::array<int, 2> shared{flags.get(), arena.fd()};
    descriptors = exchange_descriptors(bootstrap, shared);
  }
  together(bootstrap, [&] { attach(announced, descriptors, bytes); });
}

std::byte* ShmPeers::flags(Rank rank) const {
  return peers_[static_cast<std::size_t>(rank)].flags->data() + kTokenBytes;
}

std::vector<ShmPeers::Announcement> ShmPeers::announce(Bootstrap& bootstrap,
                                                       const Announcement& mine) {
  const auto gathered = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<Announcement> all(gathered.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    std::memcpy(&all[r], gathered[r].data(), sizeof all[r]);
  return all;
}

/// `descriptors` are empty in one process, where pointers serve.
void ShmPeers::attach(const std::vector<Announcement>& announced,
                      const std::vector<std::vector<Descriptor>>& descriptors, Bytes flags_bytes) {
  for (Rank r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (r == rank_) continue;
    if (descriptors.empty()) {
      peers_[i].flags = *announced[i].flags_mapping;
      peers_[i].arena = announced[i].arena_data;
    } else {
      map(descriptors[i], announced[i], r, flags_bytes);
    }
    verify(announced[i], r);
  }
}

void ShmPeers::map(const std::vector<Descriptor>& fds, const Announcement& announced, Rank from,
                   Bytes flags_bytes) {
  const bool sizes_fit = fds.size() == 2 && size_of_file(fds[0].get()) == flags_bytes &&
                         size_of_file(fds[1].get()) >= announced.arena_bytes;
  if (!sizes_fit) {
    fail_usage(fmt::format("rank {} got other shared memory from rank {} than that rank announced",
                           rank_, from));
  }
  ShmPeer& peer = peers_[static_cast<std::size_t>(from)];
  peer.flags = std::make_shared<SharedMapping>(fds[0].get(), flags_bytes);
  peer.arena_mapping = std::make_unique<SharedMapping>(fds[1].get(), announced.arena_bytes);
  peer.arena = peer.arena_mapping->data();
  // Advice only, and per mapping: huge pages of the owner's arena need it here too.
  madvise(peer.arena, static_cast<std::size_t>(announced.arena_bytes), MADV_HUGEPAGE);
}

void ShmPeers::verify(const Announcement& announced, Rank from) const {
  const ShmPeer& peer = peers_[static_cast<std::size_t>(from)];
  if (shows_token(peer.flags->data(), announced.flags) && shows_token(peer.arena, announced.arena))
    return;
  fail_usage(fmt::format("the memory that rank {} mapped for rank {} on {} is not that rank's",
                         rank_, from, host(from)));
}

}  // namespace weft
