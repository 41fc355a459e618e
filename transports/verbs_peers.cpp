#include "transports/verbs_peers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

constexpr int kInlined = 220;  // asked for; what the device gives may be more or less
constexpr int kFewestReceives = 8;
// Slots of a peer, where memory allows: half of them used up is a credit to be told, which is a
// message of its own.
constexpr int kFewestSlots = 8;
constexpr Bytes kSlotMemory = Bytes{16} << 20;  // of all peers, each way

/// What a rank tells all others before anybody is connected.
struct Introduction {
  ibv_gid gid;
  std::uint16_t lid;
  std::uint16_t mtu;
  std::int32_t queue_pairs;
  std::int32_t roce;
  std::uint64_t control;
  std::uint32_t control_key;
  char device[64];
};

Introduction introduction_of(const VerbsDevice& device, const VerbsControl& control,
                             int queue_pairs) {
  Introduction mine{};
  mine.gid = device.gid;
  mine.lid = device.port_attributes.lid;
  mine.mtu = static_cast<std::uint16_t>(device.port_attributes.active_mtu);
  mine.queue_pairs = queue_pairs;
  mine.roce = device.roce;
  mine.control = control.address();
  mine.control_key = control.remote_key();
  device.where().copy(mine.device, sizeof mine.device - 1);
  return mine;
}

void check(const VerbsOptions& options) {
  if (options.queue_pairs > kMostVerbsQueuePairs) {
    fail_usage(fmt::format("--qps {}: verbs makes at most {} queue pairs to a peer",
                           options.queue_pairs, kMostVerbsQueuePairs));
  }
  if (options.signal == SignalMode::write && options.queue_pairs > 1) {
    fail_usage(
        fmt::format("--signal write polls memory, whose order holds on one queue pair only; "
                    "leave out --qps {}, or give --qps 1",
                    options.queue_pairs));
  }
}

ibv_mtu agreed_mtu(const VerbsOptions& options, const VerbsDevice& device, int theirs,
                   const std::string& their_name) {
  const auto both = static_cast<ibv_mtu>(std::min<int>(device.port_attributes.active_mtu, theirs));
  if (options.path_mtu == 0) return both;
  if (options.path_mtu > bytes_of(both)) {
    fail_usage(
        fmt::format("--path-mtu {}: between {} and {} at most {} are possible; raise the "
                    "MTU of the network interfaces",
                    options.path_mtu, device.where(), their_name, bytes_of(both)));
  }
  return mtu_of(options.path_mtu);
}

/// Bytes that a queue pair of this device really carries inline, at most `wanted`.
int inlined_by(const VerbsDevice& device, ibv_cq* completions, int wanted) {
  for (int bytes = wanted; bytes > 0; bytes /= 2) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions;
    attributes.cap = {1, 1, 1, 1, static_cast<std::uint32_t>(bytes)};
    attributes.qp_type = IBV_QPT_RC;
    const VerbsQueuePair trial(ibv_create_qp(device.domain.get(), &attributes));
    if (trial) return bytes;
  }
  return 0;
}

}  // namespace

VerbsPeers::VerbsPeers(Bootstrap& bootstrap, const VerbsOptions& options)
    : options_(options),
      rank_(bootstrap.rank()),
      hosts_(bootstrap.hosts()),
      peers_(static_cast<std::size_t>(bootstrap.size())),
      queues_(peers_.size() * static_cast<std::size_t>(options.queue_pairs)),
      remote_(queues_.size()) {
  together(bootstrap, [&] {
    check(options_);
    device_ = open_verbs_device(options_, bootstrap.local_rank());
    const auto slots = static_cast<unsigned>(std::clamp<Bytes>(
        kSlotMemory / (size() * (options_.eager + static_cast<Bytes>(sizeof(Envelope)))),
        kFewestSlots, VerbsControl::kMostLongSlots));
    control_ =
        std::make_unique<VerbsControl>(device_->domain.get(), size(), options_.eager,
                                       static_cast<int>(std::bit_floor(slots)), device_->where());
    make_completions();
  });
  introduce(bootstrap);
}

QueueDepths VerbsPeers::depths_for(int ranks) const {
  QueueDepths depths;
  const auto needed = [&] {
    return static_cast<std::int64_t>(ranks - 1) * options_.queue_pairs *
           (depths.send + depths.receive);
  };
  while (needed() > device_->attributes.max_cqe && depths.receive > kFewestReceives) {
    depths.send /= 2;
    depths.receive /= 2;
  }
  if (needed() > device_->attributes.max_cqe) {
    fail_usage(fmt::format(
        "{} queue pairs to each of {} ranks are more than the completion queue "
        "of {} holds ({}); lower --qps",
        options_.queue_pairs, ranks - 1, device_->where(), device_->attributes.max_cqe));
  }
  return depths;
}

void VerbsPeers::make_completions() {
  depths_ = depths_for(size());
  const int queues = std::max(1, (size() - 1) * options_.queue_pairs);
  completions_.reset(ibv_create_cq(device_->context.get(),
                                   queues * (depths_.send + depths_.receive), nullptr, nullptr, 0));
  if (!completions_) fail_verbs("ibv_create_cq", device_->where(), errno);
  depths_.inlined = inlined_by(*device_, completions_.get(), kInlined);
}

void VerbsPeers::introduce(Bootstrap& bootstrap) {
  const Introduction mine = introduction_of(*device_, *control_, options_.queue_pairs);
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  together(bootstrap, [&] {
    for (Rank rank = 0; rank < size(); ++rank) {
      if (rank == rank_) continue;
      Introduction theirs{};
      std::memcpy(&theirs, all[static_cast<std::size_t>(rank)].data(), sizeof theirs);
      if (theirs.queue_pairs != options_.queue_pairs) {
        fail_usage(fmt::format("rank {} has --qps {}, rank {} has {}; give all the same", rank,
                               theirs.queue_pairs, rank_, options_.queue_pairs));
      }
      if ((theirs.roce != 0) != device_->roce) {
        fail_usage(fmt::format("{} of rank {} is {}, {} of rank {} is not; choose --device",
                               theirs.device, rank, theirs.roce != 0 ? "RoCE" : "InfiniBand",
                               device_->where(), rank_));
      }
      VerbsPeer& peer = peers_[static_cast<std::size_t>(rank)];
      peer.path = {theirs.gid, theirs.lid,
                   agreed_mtu(options_, *device_, theirs.mtu, theirs.device)};
      peer.control = theirs.control;
      peer.control_key = theirs.control_key;
      peer.device = theirs.device;
    }
  });
}

void VerbsPeers::connect(Bootstrap& bootstrap, std::span<const Rank> peers) {
  std::vector<Rank> fresh;
  std::ranges::set_difference(peers, connected_, std::back_inserter(fresh));
  if (!bootstrap.all(fresh.empty())) {
    together(bootstrap, [&] { make_queues(fresh); });
    exchange_addresses(bootstrap, fresh);
  }
  connected_.assign(peers.begin(), peers.end());
}

void VerbsPeers::make_queues(std::span<const Rank> fresh) {
  for (const Rank rank : fresh) {
    for (int q = 0; q < options_.queue_pairs; ++q) {
      const std::uint32_t number = number_of(rank, q);
      queues_[number] = std::make_unique<VerbsQueue>(*device_, completions_.get(), depths_, number);
    }
  }
}

/// Every rank tells all of its new queues; those to this one are what it connects to.
void VerbsPeers::exchange_addresses(Bootstrap& bootstrap, std::span<const Rank> fresh) {
  struct Told {
    Rank to;
    std::int32_t index;
    QueueAddress address;
  };
  std::vector<Told> mine;
  for (const Rank rank : fresh) {
    for (int q = 0; q < options_.queue_pairs; ++q)
      mine.push_back({rank, q, queue(rank, q).address()});
  }
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(mine)));
  for (const Rank rank : fresh) {
    const auto& bytes = all[static_cast<std::size_t>(rank)];
    std::vector<Told> theirs(bytes.size() / sizeof(Told));
    if (!theirs.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (const Told& told : theirs) {
      if (told.to == rank_) remote_[index_of(rank, told.index)] = told.address;
    }
  }
  together(bootstrap, [&] {  // nobody sends to a queue pair that is not ready
    for (const Rank rank : fresh) {
      for (int q = 0; q < options_.queue_pairs; ++q)
        queue(rank, q).connect(*device_, options_, remote_[index_of(rank, q)], peer(rank).path, q);
    }
  });
}

void VerbsPeers::share(Bootstrap& bootstrap, Arena& arena, Bytes used) {
  struct Shared {
    std::uint64_t address;
    std::uint32_t key;
  };
  together(bootstrap, [&] {
    arena_memory_ = device_->memory(
        {arena.data(), static_cast<std::size_t>(std::max<Bytes>(used, 1)), arena.space()});
  });
  const Shared mine{reinterpret_cast<std::uint64_t>(arena.data()), arena_memory_->keys->rkey};
  const auto all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Shared theirs{};
    std::memcpy(&theirs, all[rank].data(), sizeof theirs);
    peers_[rank].arena = theirs.address;
    peers_[rank].arena_key = theirs.key;
  }
}

std::string VerbsPeers::describe(std::uint32_t queue) const {
  const Rank other = peer_of(queue);
  const VerbsQueue& q = *queues_[queue];
  std::string text = fmt::format(
      "queue pair {:#x} of rank {} on {} ({}, GID {} {}) to queue pair {:#x} of rank {} on {} ({}, "
      "{})",
      q.address().number, rank_, host(rank_), device_->where(), device_->gid_index,
      gid_text(device_->gid), q.peer().number, other, host(other), peer(other).device,
      gid_text(peer(other).path.gid));
  if (q.udp_source_port() != 0) text += fmt::format(", UDP source port {}", q.udp_source_port());
  return text;
}

std::vector<QueuePairFacts> VerbsPeers::facts() const {
  std::vector<QueuePairFacts> facts;
  for (std::uint32_t i = 0; i < queues_.size(); ++i) {
    if (!queues_[i]) continue;
    const VerbsQueue& q = *queues_[i];
    const VerbsPeer& other = peer(peer_of(i));
    facts.push_back({.rank = rank_,
                     .peer = peer_of(i),
                     .index = ordinal_of(i),
                     .device = device_->where(),
                     .address = gid_text(device_->gid),
                     .peer_address = gid_text(other.path.gid),
                     .number = q.address().number,
                     .peer_number = q.peer().number,
                     .udp_source_port = q.udp_source_port(),
                     .path_mtu = bytes_of(other.path.mtu),
                     .sent = q.sent(),
                     .read = q.read()});
  }
  return facts;
}

}  // namespace weft
