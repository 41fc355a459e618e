// The load/store wire: puts, signals and waits for schedules, and native forms.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"
#include "transports/file_limit.hpp"
#include "transports/shm_copy.hpp"
#include "transports/shm_native.hpp"
#include "transports/shm_peers.hpp"
#include "transports/shm_wire.hpp"

namespace weft {
namespace {

constexpr CommId kMaxComms = 64;
// Descriptors while the ranks of a host meet: 12 ranks needed 48, 4 needed 10.
constexpr int kFilesOfShm = 8, kFilesPerPeer = 4;

Bytes counter_bytes(int ranks) {
  return Bytes{kMaxComms} * kChannelsPerComm * ranks * static_cast<Bytes>(sizeof(LineFlag));
}
Bytes flags_bytes(int ranks) {
  return counter_bytes(ranks) + Bytes{kMaxComms} * static_cast<Bytes>(sizeof(Board));
}

/// A rank's flags: counters[comm][channel][peer] of the schedules, each written by that peer, and
/// from `boards` on a board per communicator, written by the rank itself.
class ShmTransport final : public Transport {
 public:
  ShmTransport(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options,
               const ShmSettings& settings)
      : peers_(bootstrap, arena, flags_bytes(bootstrap.size())),
        policy_(options),
        signalled_(static_cast<std::size_t>(kMaxComms) * kChannelsPerComm * at(bootstrap.size()),
                   0),
        native_(peers_, counter_bytes(bootstrap.size()), policy_, settings) {}

  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override {
    copy_to_peer(peers_.arena(channel.peer) + destination, peers_.arena(peers_.rank()) + source,
                 static_cast<std::size_t>(n));
  }

  std::span<const PostedPart> fetch(Channel channel, Bytes source, Bytes destination,
                                    Bytes n) override {
    copy_to_peer(peers_.arena(peers_.rank()) + destination, peers_.arena(channel.peer) + source,
                 static_cast<std::size_t>(n));
    return in_one_part(n);
  }

  void signal(Channel channel) override {
    const std::uint64_t next = ++signalled_[index(channel, channel.peer)];
    counter(channel.peer, index(channel, peers_.rank())).publish(next);
  }

  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    const Expected only{channel, at_least};
    wait_any(std::span(&only, 1), what);
  }

  std::size_t wait_any(std::span<const Expected> any, const char* what) override {
    Patience patience(policy_);
    for (;;) {
      for (std::size_t i = 0; i < any.size(); ++i) {
        const Channel& channel = any[i].channel;
        const LineFlag& mine = counter(peers_.rank(), index(channel, channel.peer));
        if (mine.reached(any[i].at_least)) return i;
      }
      if (patience.pause()) continue;
      const Channel& first = any.front().channel;
      fail_missing(peers_, policy_, first.peer,
                   first.id == kCreditChannel ? "the ready credit" : "data", what);
    }
  }

  void flush() override {}  // put() and fetch() have copied when they return
  CommId max_comms() const override { return kMaxComms; }
  bool offers_native(OperationKind kind) const override { return native_.offers(kind); }
  std::unique_ptr<NativeOperation> native(const NativeInput& input) override {
    return native_.make(input);
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  std::size_t index(Channel channel, Rank other) const {
    const auto purpose = static_cast<std::size_t>(channel.comm) * kChannelsPerComm + channel.id;
    return purpose * at(peers_.size()) + at(other);
  }
  LineFlag& counter(Rank owner, std::size_t index) const {
    return reinterpret_cast<LineFlag*>(peers_.flags(owner))[index];
  }

  ShmPeers peers_;
  WaitPolicy policy_;
  std::vector<std::uint64_t> signalled_;  // last value written to each peer's counter
  ShmNative native_;
};

}  // namespace

std::string shm_unavailable(Bootstrap& bootstrap) {
  const auto hosts = distinct_real_hosts(bootstrap.hosts());
  if (hosts.size() > 1) {
    return fmt::format("ranks are on {} hosts ({}); shm works inside one host", hosts.size(),
                       fmt::join(hosts, ", "));
  }
  if (bootstrap.size() > kMaxShmRanks) {
    return fmt::format("{} ranks; shm connects at most {}", bootstrap.size(), kMaxShmRanks);
  }
  return first_reason(bootstrap, too_few_files(kFilesOfShm + kFilesPerPeer * bootstrap.size()));
}

std::unique_ptr<Transport> make_shm_wire(Bootstrap& bootstrap, Arena& arena,
                                         const SessionOptions& options,
                                         const ShmSettings& settings) {
  const std::string why = shm_unavailable(bootstrap);
  if (!why.empty()) {
    fail_usage(fmt::format("transport '{}' is not available here: {}",
                           settings.bare ? "bare" : "shm", why));
  }
  return std::make_unique<ShmTransport>(bootstrap, arena, options, settings);
}

std::unique_ptr<Transport> make_shm_transport(Bootstrap& bootstrap, Arena& arena,
                                              const SessionOptions& options) {
  return make_shm_wire(bootstrap, arena, options, {});
}

}  // namespace weft
