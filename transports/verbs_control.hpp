// Memory through which two ranks run a connection: what they may still send, and a ring of slots
// where small messages wait until the receiver asks for them.
//
// A rank has one block for each peer, written by that peer:
//   Credits | slots
// and beside it one of the same form that it sends from. Private to verbs*.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transports/verbs_objects.hpp"
#include "transports/verbs_options.hpp"

namespace weft {

/// Counts since the connection began, as the receiver tells them to the sender: receives posted
/// again on each queue pair, slots that are free again. They wrap.
struct alignas(64) Credits {
  std::uint32_t receives[kMostVerbsQueuePairs];
  std::uint32_t slots;
};

/// Stands at the end of a slot; the message, of any length, right before it. So the last word says
/// that all is there, wherever the message begins.
struct Envelope {
  std::uint64_t destination = 0;  // in the receiver's arena
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;  // where no completion tells it
  std::uint32_t unused = 0;
  std::uint32_t stamp = 0;  // which use of the ring's slots this is, from 1
};
static_assert(sizeof(Envelope) == 24);

/// The blocks of all peers, registered.
class VerbsControl {
 public:
  /// `eager`: the longest message that fits into a slot; `slots`: a power of two.
  VerbsControl(ibv_pd* domain, int ranks, Bytes eager, int slots, const std::string& where);

  int slots() const { return slots_; }
  Bytes eager() const { return eager_; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }
  std::uint32_t local_key() const { return registered_->lkey; }
  std::uint32_t remote_key() const { return registered_->rkey; }

  int slot_of(std::uint32_t use) const {
    return static_cast<int>(use & static_cast<std::uint32_t>(slots_ - 1));
  }

  // Offsets, the same on all ranks.
  Bytes credits_of(int peer) const { return peer * 2 * block_; }
  Bytes slot_end(int peer, std::uint32_t use) const {
    return credits_of(peer) + kSlotsAt + (slot_of(use) + 1) * slot_bytes_;
  }
  /// From what a peer writes here to what is sent to it.
  Bytes outgoing() const { return block_; }

  std::byte* at(Bytes offset) { return memory_.data() + offset; }
  /// What the peer gave back.
  std::uint32_t receives_back(int peer, int queue) {
    return load(&reinterpret_cast<Credits*>(at(credits_of(peer)))->receives[queue]);
  }
  std::uint32_t slots_back(int peer) {
    return load(&reinterpret_cast<Credits*>(at(credits_of(peer)))->slots);
  }
  Credits& outgoing_credits(int peer) {
    return *reinterpret_cast<Credits*>(at(credits_of(peer) + outgoing()));
  }
  /// The last word of a slot.
  std::uint32_t stamp(int peer, std::uint32_t use) {
    return load(reinterpret_cast<std::uint32_t*>(at(slot_end(peer, use) - 4)));
  }
  Envelope envelope(int peer, std::uint32_t use) {
    Envelope result;
    std::memcpy(&result, at(slot_end(peer, use)) - sizeof result, sizeof result);
    return result;
  }

 private:
  static constexpr Bytes kSlotsAt = sizeof(Credits);
  static std::uint32_t load(std::uint32_t* word) {
    return std::atomic_ref(*word).load(std::memory_order_acquire);
  }

  Bytes eager_, slot_bytes_, block_;
  int slots_;
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  class Pages {
   public:
    explicit Pages(Bytes bytes);
    std::byte* data() const { return memory_.get(); }

   private:
    std::unique_ptr<std::byte, Free> memory_;
  };
  Pages memory_;
  VerbsMemory registered_;
};

}  // namespace weft
