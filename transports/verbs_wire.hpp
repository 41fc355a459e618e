// The verbs wire: puts are RDMA WRITEs, fetches READs, signals immediates. Private to verbs*.cpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.hpp"
#include "transports/verbs_channels.hpp"
#include "transports/verbs_peers.hpp"
#include "transports/wait_policy.hpp"

namespace weft {

class VerbsWire final : public Transport {
 public:
  VerbsWire(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options);

  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override;
  void signal(Channel channel) override;
  std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination, Bytes n,
                                   bool credited) override;
  std::span<const PostedPart> fetch(Channel channel, Bytes source, Bytes destination,
                                    Bytes n) override;
  void wait(Channel channel, std::uint64_t at_least, const char* what) override;
  void flush() override;
  void commit(Bytes used, std::span<const Rank> peers) override;
  CommId max_comms() const override { return Immediate::kComms; }
  std::string_view preferred_algorithm(const ScheduleInput& input, DType dtype) const override;
  Bytes uncredited_bytes() const override { return eager_; }
  std::vector<QueuePairFacts> queue_pairs() const override { return peers_.facts(); }

 private:
  static constexpr int kPollsPerPause = 16;

  /// What is kept of each peer.
  struct PeerState {
    std::vector<std::uint32_t> receives_back;  // by queue: as last read
    PerRing<std::uint32_t> slots_used, slots_back;
    PerRing<std::uint32_t> slots_freed, slots_told;
    PerRing<std::uint32_t> slots_seen;  // write mode: uses of slots that were taken note of
    std::uint64_t fetched = 0;          // messages
    bool owes = false;                  // receives were posted again that the peer does not know of
  };

  std::size_t place(Channel channel, Rank peer) const {
    const auto purpose = static_cast<std::size_t>(channel.comm) * kChannelsPerComm + channel.id;
    return purpose * static_cast<std::size_t>(peers_.size()) + static_cast<std::size_t>(peer);
  }
  /// Of a peer's queues, the one that message number `message` of a channel goes to.
  int queue_of(std::uint64_t message) const {
    return options_.queue_pairs == 1
               ? 0
               : static_cast<int>(message % static_cast<std::uint64_t>(options_.queue_pairs));
  }
  PeerState& state(Rank peer) { return states_[static_cast<std::size_t>(peer)]; }
  Arrivals& arrivals(const Channel& channel);

  // Sending.
  int send_eagerly(Channel channel, Bytes source, Bytes destination, Bytes n);
  template <class Post>
  std::span<const PostedPart> in_parts(Rank peer, std::uint64_t message, Bytes n, Post post);
  std::span<const PostedPart> send_parts(Channel channel, Bytes source, Bytes destination, Bytes n);
  Work on_arena(Rank peer, Bytes here, Bytes there, Bytes n) const;
  /// Waits until the queue takes one more work request, and for `immediate` until the peer has a
  /// receive for it.
  VerbsQueue& ready(Rank peer, int queue, bool immediate);
  void wait_for_slot(Rank peer, SlotRing ring);
  void push(Rank peer, int index, VerbsQueue& queue, const Work& work);
  void post_all();

  // Receiving.
  bool polls_memory() const { return options_.signal == SignalMode::write; }
  void poll_completions();
  /// Whatever any peer sent.
  void progress();
  /// Polls until `reached`; fails after the deadline and says what is `missing` of the peer.
  template <class Reached, class Missing>
  void await(Rank peer, Reached reached, Missing missing);
  void take(const ibv_wc& completion);
  void take_receive(std::uint32_t number, std::uint32_t bits);
  void take_immediate(Rank peer, std::uint32_t bits);
  void poll_slots(Rank peer);
  void poll_slots(Rank peer, SlotRing ring);
  void deliver(const Channel& channel, Arrivals& arrivals, std::uint64_t at_least);
  void read_credits(Rank peer);
  void tell_freed_slots(Rank peer);
  void give_back(Rank peer);

  [[noreturn]] void fail_completion(const ibv_wc& completion) const;
  [[noreturn]] void fail_missing(Rank peer, const std::string& missing) const;

  Bootstrap& bootstrap_;
  Arena& arena_;
  WaitPolicy policy_;
  VerbsOptions options_;
  Bytes eager_;
  VerbsPeers peers_;
  std::vector<PeerState> states_;
  std::vector<std::uint64_t> sent_;                  // messages, by place()
  std::vector<std::unique_ptr<Arrivals>> arrivals_;  // made by the first message
  std::vector<std::uint32_t> dirty_;                 // queues with work requests not yet posted
  // Queues that may still read from where messages are, in any order, and the same by queue.
  std::vector<std::uint32_t> borrowers_;
  std::vector<bool> borrows_;
  std::array<PostedPart, kMostVerbsQueuePairs> pieces_{};  // of the last send()
  const char* doing_ = "setting up";                       // for errors
};

template <class Reached, class Missing>
void VerbsWire::await(Rank peer, Reached reached, Missing missing) {
  if (reached()) return;
  post_all();
  // Polls follow each other at once: asking the completion queue or the memory is pause enough.
  // With more ranks than cores somebody else needs the core after each.
  const int polls = policy_.oversubscribed() ? 1 : kPollsPerPause;
  Patience patience(policy_, polls);
  for (;;) {
    progress();
    for (int i = 0; i < polls; ++i) {
      if (reached()) return;
      if (!polls_memory()) poll_completions();
    }
    if (!patience.pause()) fail_missing(peer, missing());
  }
}

}  // namespace weft
