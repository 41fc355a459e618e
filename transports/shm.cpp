#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"
#include "transports/shm_copy.hpp"
#include "transports/shm_segment.hpp"
#include "transports/shm_sockets.hpp"
#include "transports/transport.hpp"

namespace weft {
namespace {

constexpr int kMaxRanks = 64;
constexpr CommId kMaxComms = 64;
constexpr Bytes kHeaderBytes = 4096;
constexpr int kSpins = 4096;         // before a wait looks at the clock
constexpr int kPausesPerLook = 256;  // between looks at the clock
constexpr int kYields = 64;          // oversubscribed: before a wait sleeps
constexpr std::chrono::microseconds kSleep{50};
// A wait longer than this yields too: the peer may need this very core, for its own second stream
// (overlap) or beside other work.
constexpr std::chrono::microseconds kPolite{50};

/// One counter, written by one rank and read by one rank, on a cache line of its own.
struct alignas(64) Counter {
  std::atomic<std::uint64_t> value;
};
static_assert(sizeof(Counter) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// What a rank tells the others before they map its memory.
struct Announcement {
  Token flags{}, arena{};
  Bytes arena_bytes = 0;
  std::byte* arena_data = nullptr;                                // in one process
  const std::shared_ptr<SharedMapping>* flags_mapping = nullptr;  // in one process
};

/// Memory of one rank, as this rank sees it.
struct Peer {
  std::shared_ptr<SharedMapping> flags;
  std::unique_ptr<SharedMapping> arena_mapping;  // none for this rank's own, and in one process
  std::byte* arena = nullptr;
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options)
      : rank_(bootstrap.rank()),
        size_(bootstrap.size()),
        hosts_(bootstrap.hosts()),
        timeout_(options.timeout),
        spins_(options.oversubscribed ? 0 : kSpins),
        oversubscribed_(options.oversubscribed),
        arena_(arena.data()),
        peers_(static_cast<std::size_t>(size_)),
        signalled_(static_cast<std::size_t>(kMaxComms) * kChannelsPerComm * peers_.size(), 0) {
    connect(bootstrap, arena);
  }

  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override {
    copy_to_peer(peer(channel.peer).arena + destination, arena_ + source,
                 static_cast<std::size_t>(n));
  }

  void signal(Channel channel) override {
    const std::uint64_t next = ++signalled_[index(channel, channel.peer)];
    counter(channel.peer, index(channel, rank_)).value.store(next, std::memory_order_release);
  }

  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    const Counter& mine = counter(rank_, index(channel, channel.peer));
    const auto reached = [&] { return mine.value.load(std::memory_order_acquire) >= at_least; };
    if (reached()) return;
    for (int i = 0; i < spins_; ++i) {
      pause();
      if (reached()) return;
    }
    wait_slowly(reached, channel, what);
  }

  void flush() override {}  // put() has copied when it returns
  CommId max_comms() const override { return kMaxComms; }

 private:
  template <class Reached>
  void wait_slowly(const Reached& reached, Channel channel, const char* what) {
    const auto start = std::chrono::steady_clock::now();
    for (int look = 0; !reached(); ++look) {
      const auto waited = std::chrono::steady_clock::now() - start;
      if (waited > timeout_) fail_missing(channel, what);
      relax(look, waited > kPolite);
    }
  }

  void relax(int look, bool long_wait) const {
    if (oversubscribed_) {
      look < kYields ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
      return;
    }
    for (int i = 0; i < kPausesPerLook; ++i) pause();
    if (long_wait) std::this_thread::yield();
  }

  [[noreturn]] void fail_missing(Channel channel, const char* what) const {
    fail(ExitCode::timed_out,
         fmt::format("rank {} on {} waited {:.1f} s for {} of rank {} on {} in {}; see whether "
                     "that rank lives, or raise "
                     "--timeout",
                     rank_, hosts_[static_cast<std::size_t>(rank_)], timeout_.count(),
                     channel.id == kCreditChannel ? "the ready credit" : "data", channel.peer,
                     hosts_[static_cast<std::size_t>(channel.peer)], what));
  }

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  std::size_t index(Channel channel, Rank other) const {
    return (static_cast<std::size_t>(channel.comm) * kChannelsPerComm + channel.id) *
               peers_.size() +
           static_cast<std::size_t>(other);
  }
  Counter& counter(Rank owner, std::size_t index) {
    return reinterpret_cast<Counter*>(peer(owner).flags->data() + kHeaderBytes)[index];
  }

  // ---- setup
  // --------------------------------------------------------------------------------------------------------

  void connect(Bootstrap& bootstrap, Arena& arena) {
    const Bytes flags_bytes =
        kHeaderBytes + static_cast<Bytes>(signalled_.size() * sizeof(Counter));
    Descriptor flags;
    together(bootstrap, [&] {
      flags = make_memfd("weft-flags", flags_bytes);
      peer(rank_).flags = std::make_shared<SharedMapping>(flags.get(), flags_bytes);
    });
    peer(rank_).arena = arena.data();
    const Announcement mine{.flags = random_token(),
                            .arena = random_token(),
                            .arena_bytes = arena.size(),
                            .arena_data = arena.data(),
                            .flags_mapping = &peer(rank_).flags};
    std::memcpy(peer(rank_).flags->data(), mine.flags.data(), mine.flags.size());
    const TokenPage proof(arena.data(), mine.arena);
    const auto announced = announce(bootstrap, mine);
    std::vector<std::vector<Descriptor>> descriptors;
    if (!bootstrap.in_process()) {
      const std::array<int, 2> shared{flags.get(), arena.fd()};
      descriptors = exchange_descriptors(bootstrap, shared);
    }
    together(bootstrap, [&] { attach(announced, descriptors, flags_bytes); });
  }

  static std::vector<Announcement> announce(Bootstrap& bootstrap, const Announcement& mine) {
    const auto gathered = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<Announcement> all(gathered.size());
    for (std::size_t r = 0; r < all.size(); ++r)
      std::memcpy(&all[r], gathered[r].data(), sizeof all[r]);
    return all;
  }

  /// `descriptors` are empty in one process, where pointers serve.
  void attach(const std::vector<Announcement>& announced,
              const std::vector<std::vector<Descriptor>>& descriptors, Bytes flags_bytes) {
    for (Rank r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (r == rank_) continue;
      if (descriptors.empty()) {
        peers_[i].flags = *announced[i].flags_mapping;
        peers_[i].arena = announced[i].arena_data;
      } else {
        map(peers_[i], descriptors[i], announced[i], r, flags_bytes);
      }
      verify(peers_[i], announced[i], r);
    }
  }

  void map(Peer& peer, const std::vector<Descriptor>& fds, const Announcement& announced, Rank r,
           Bytes flags_bytes) {
    const bool sizes_fit = fds.size() == 2 && size_of_file(fds[0].get()) == flags_bytes &&
                           size_of_file(fds[1].get()) >= announced.arena_bytes;
    if (!sizes_fit) {
      fail_usage(fmt::format(
          "rank {} got other shared memory from rank {} than that rank announced", rank_, r));
    }
    peer.flags = std::make_shared<SharedMapping>(fds[0].get(), flags_bytes);
    peer.arena_mapping = std::make_unique<SharedMapping>(fds[1].get(), announced.arena_bytes);
    peer.arena = peer.arena_mapping->data();
  }

  void verify(const Peer& peer, const Announcement& announced, Rank r) const {
    if (shows_token(peer.flags->data(), announced.flags) &&
        shows_token(peer.arena, announced.arena))
      return;
    fail_usage(fmt::format("the memory that rank {} mapped for rank {} on {} is not that rank's",
                           rank_, r, hosts_[static_cast<std::size_t>(r)]));
  }

  Rank rank_;
  int size_;
  std::vector<std::string> hosts_;
  std::chrono::duration<double> timeout_;
  int spins_;
  bool oversubscribed_;
  std::byte* arena_;
  std::vector<Peer> peers_;
  std::vector<std::uint64_t> signalled_;  // last value written to each peer's counter
};

}  // namespace

std::string shm_unavailable(Bootstrap& bootstrap) {
  const auto hosts = distinct_real_hosts(bootstrap.hosts());
  if (hosts.size() > 1) {
    return fmt::format("ranks are on {} hosts ({}); shm works inside one host", hosts.size(),
                       fmt::join(hosts, ", "));
  }
  if (bootstrap.size() > kMaxRanks) {
    return fmt::format("{} ranks; shm connects at most {}", bootstrap.size(), kMaxRanks);
  }
  return {};
}

std::unique_ptr<Transport> make_shm_transport(Bootstrap& bootstrap, Arena& arena,
                                              const SessionOptions& options) {
  const std::string why = shm_unavailable(bootstrap);
  if (!why.empty()) fail_usage("transport 'shm' is not available here: " + why);
  return std::make_unique<ShmTransport>(bootstrap, arena, options);
}

}  // namespace weft
