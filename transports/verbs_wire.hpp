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

/// What happens to each message is written for few instructions, with what seldom happens out of
/// the way: the latency of a message of some bytes is made of them.
class VerbsWire final : public Transport {
 public:
  VerbsWire(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options);

  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override;
  void signal(Channel channel) override;
  std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination, Bytes n,
                                   bool credited) override;
  std::span<const PostedPart> fetch(Channel channel, Bytes source, Bytes destination,
                                    Bytes n) override;
  std::unique_ptr<PersistentSend> send_init(Channel channel, Bytes source, Bytes destination,
                                            Bytes n, bool credited, bool last) override;
  void post() override { post_all(); }
  void wait(Channel channel, std::uint64_t at_least, const char* what) override;
  std::size_t wait_any(std::span<const Expected> any, const char* what) override;
  void flush() override;
  void commit(Bytes used, std::span<const Rank> peers) override;
  CommId max_comms() const override { return Immediate::kComms; }
  std::string_view preferred_algorithm(const ScheduleInput& input, DType dtype) const override;
  Bytes uncredited_bytes() const override { return eager_; }
  std::vector<QueuePairFacts> queue_pairs() const override { return peers_.facts(); }

 private:
  static constexpr int kReserve = 4;  // of a send queue's room, for credits
  // Messages of one pair in one operation: half of what an immediate can tell apart.
  static constexpr std::uint32_t kWindow = 2048;

  /// What is kept of each peer.
  struct PeerState {
    // Its block here, that of the same form from which this rank writes, and where to.
    std::byte *incoming = nullptr, *outgoing = nullptr;
    std::uint64_t block = 0;
    std::uint32_t block_key = 0;
    const std::unique_ptr<VerbsQueue>* queues = nullptr;
    std::vector<std::uint32_t> receives_back;  // by queue: as last read
    PerRing<std::uint32_t> slots_used, slots_back;
    PerRing<UnloadedSlots> unloaded;
    PerRing<std::uint32_t> slots_told;  // of those
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
  Arrivals& arrivals(const Channel& channel) {
    std::unique_ptr<Arrivals>& found = arrivals_[place(channel, channel.peer)];
    if (!found) [[unlikely]]
      found = std::make_unique<Arrivals>(kWindow);
    return *found;
  }

  // Sending.
  /// What goes into a slot of the peer.
  struct SlotMessage {
    Rank peer = 0;
    SlotRing ring = SlotRing::short_;
    PeerState* state = nullptr;
    std::uint64_t* sent = nullptr;  // messages of its channel
    const std::byte* source = nullptr;
    Envelope envelope;  // the immediate without slot and message
  };
  class SlotSend;
  SlotMessage slot_message(const Channel& channel, Bytes source, Bytes destination, Bytes n);
  /// Where a message lies in a slot, in a block of this rank and in the peer's.
  struct SlotPlace {
    std::uint32_t use = 0;        // of the ring's slots
    std::uint32_t immediate = 0;  // bits that tell of the slot
    std::byte* here = nullptr;
    std::uint64_t there = 0;
  };
  SlotPlace slot_place(const SlotMessage& message, std::uint32_t use) const;
  std::uint32_t next_use(const SlotMessage& message) const {
    return message.state->slots_used[message.ring];
  }
  struct TakenSlot {
    VerbsQueue& queue;
    int index;  // of the queue, among the peer's
    std::uint32_t immediate;
    bool knows;  // the peer has the envelope: this slot's last message had the same
  };
  TakenSlot take_slot(const SlotMessage& message, const SlotPlace& place);
  Work slot_write(const SlotMessage& message, const SlotPlace& place, const TakenSlot& slot) const;
  int send_eagerly(const Channel& channel, Bytes source, Bytes destination, Bytes n);
  template <class Post>
  std::span<const PostedPart> in_parts(Rank peer, std::uint64_t message, Bytes n, Post post);
  std::span<const PostedPart> send_parts(Channel channel, Bytes source, Bytes destination, Bytes n);
  Work on_arena(Rank peer, Bytes here, Bytes there, Bytes n) const;
  /// Waits until the queue takes one more work request, and for `immediate` until the peer has a
  /// receive for it.
  VerbsQueue& ready(Rank peer, int queue, bool immediate) {
    VerbsQueue& found = *state(peer).queues[queue];
    if (!is_ready(found, immediate)) [[unlikely]]
      wait_for_queue(peer, found, immediate);
    return found;
  }
  static bool is_ready(const VerbsQueue& queue, bool immediate) {
    return queue.room() > kReserve && (!immediate || queue.credits() > 0);
  }
  void wait_for_queue(Rank peer, VerbsQueue& queue, bool immediate);
  bool slot_is_free(const PeerState& mine, SlotRing ring) const {
    return mine.slots_used[ring] - mine.slots_back[ring] < control_.ring(ring).slots;
  }
  void wait_for_slot(Rank peer, SlotRing ring);
  void push(VerbsQueue& queue, const Work& work) {
    if (!queue.anything_queued()) dirty_.push_back(&queue);
    if (queue.queue(work)) note_borrower(queue.index());
    if (queue.list_is_full()) post_all();
  }
  void note_borrower(std::uint32_t queue);
  void post_all() {
    if (!dirty_.empty()) post_dirty();
  }
  void post_dirty();
  void wait_for_borrowers();

  // Receiving.
  bool polls_memory() const { return options_.signal == SignalMode::write; }
  void poll_completions();
  /// Whatever any peer sent.
  void progress();
  /// Polls until `reached`; fails after the deadline and says what is `missing` of the peer.
  template <class Reached, class Missing>
  void await(Rank peer, Reached reached, Missing missing);
  void take(const ibv_wc& completion);
  void take_immediate(Rank peer, std::uint32_t bits);
  /// Keeps it until somebody waits for it.
  void keep(Rank peer, const Immediate& part);
  void keep_slot(Rank peer, SlotRing ring, std::uint32_t slot, const Envelope& envelope);
  /// The next message in each ring of slots.
  void poll_slots(Rank peer);
  bool poll_slot(Rank peer, SlotRing ring);
  bool is_awaited(Rank peer, std::uint32_t immediate) const {
    return peer == awaited_.peer && (immediate & ~Immediate::kSlotMask) == awaited_.immediate;
  }
  void pass_awaited();
  void deliver(Rank peer, Arrivals& arrivals, std::uint64_t at_least);
  bool has_come(const Channel& channel, Arrivals& arrived, std::uint64_t at_least);
  void unload(Rank peer, int slot);
  /// From that slot of the ring, which ends there, to where it belongs.
  void unload(Rank peer, SlotRing ring, std::uint32_t slot, const std::byte* end,
              const Envelope& envelope);
  void free_slot(Rank peer, SlotRing ring, std::uint32_t slot) {
    PeerState& mine = state(peer);
    mine.unloaded[ring].unload(slot);
    const std::uint32_t untold = mine.unloaded[ring].uses() - mine.slots_told[ring];
    if (untold >= control_.ring(ring).slots / 2) [[unlikely]]
      give_back(peer);
  }
  void refill(std::uint32_t number);
  void read_credits(Rank peer);
  void give_back(Rank peer);

  [[noreturn]] void fail_post(int error, std::uint32_t queue) const;
  [[noreturn]] void fail_completion(const ibv_wc& completion) const;
  [[noreturn]] void fail_missing(Rank peer, const std::string& missing) const;

  Bootstrap& bootstrap_;
  Arena& arena_;
  WaitPolicy policy_;
  VerbsOptions options_;
  Bytes eager_;
  VerbsPeers peers_;
  VerbsControl& control_;
  std::vector<PeerState> states_;
  std::vector<std::uint64_t> sent_;                  // messages, by place()
  std::vector<std::unique_ptr<Arrivals>> arrivals_;  // made by the first message
  /// The message that this rank is waiting for, if it comes in a slot: it goes straight to where it
  /// belongs.
  struct Awaited {
    Rank peer = -1;               // -1: none
    std::uint32_t immediate = 0;  // but for the slot
    Arrivals* channel = nullptr;
    std::uint64_t until = 0;  // messages of it
  } awaited_;
  std::vector<VerbsQueue*> dirty_;  // with work requests not yet posted
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
  PollingPatience patience(policy_);
  do {
    progress();
    for (int i = 0; i < patience.polls(); ++i) {
      if (reached()) return;
      if (!polls_memory()) poll_completions();
    }
  } while (patience.lasts());
  fail_missing(peer, missing());
}

}  // namespace weft
