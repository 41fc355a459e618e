// Memory through which two ranks run a connection: what they may still send, and two rings of slots
// where small messages wait until the receiver asks for them: short ones close together, since
// every page that a message touches costs it a look-up, and longer ones.
//
// A rank has one block for each peer, written by that peer:
//   Credits | short slots | long slots
// and beside it one of the same form that it sends from. Private to verbs*.cpp.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transports/verbs_objects.hpp"
#include "transports/verbs_options.hpp"

namespace weft {

enum class SlotRing : std::uint8_t { short_, long_ };
inline constexpr SlotRing kSlotRings[] = {SlotRing::short_, SlotRing::long_};
/// One of something for each ring.
template <class T>
struct PerRing {
  T of[2]{};
  T& operator[](SlotRing ring) { return of[static_cast<std::size_t>(ring)]; }
  const T& operator[](SlotRing ring) const { return of[static_cast<std::size_t>(ring)]; }
};

/// Copies a message. Of some bytes that takes less time than a call into the C library.
inline void copy_message(std::byte* to, const std::byte* from, std::size_t n) {
  std::uint64_t first, last;
  if (n < sizeof first || n > 2 * sizeof first) {
    std::memcpy(to, from, n);
    return;
  }
  std::memcpy(&first, from, sizeof first);
  std::memcpy(&last, from + n - sizeof last, sizeof last);
  std::memcpy(to, &first, sizeof first);
  std::memcpy(to + n - sizeof last, &last, sizeof last);
}

/// Counts since the connection began, as the receiver tells them to the sender: receives posted
/// again on each queue pair, slots that are free again. They wrap.
struct alignas(64) Credits {
  std::uint32_t receives[kMostVerbsQueuePairs];
  PerRing<std::uint32_t> slots;
};

/// Stands at the end of a slot; the message, of any length, right before it. So the last word says
/// that all is there, wherever the message begins.
struct Envelope {
  std::uint64_t destination : 47 = 0;  // in the receiver's arena
  std::uint64_t bytes : 17 = 0;
  // Where no completion tells of the message; else these two are not sent.
  std::uint32_t immediate = 0;
  std::uint32_t stamp = 0;  // which use of the ring's slots this is, from 1
};
static_assert(sizeof(Envelope) == 16);
inline constexpr Bytes kEnvelopeWithoutStamp = 8;

/// Slots of a ring whose messages were unloaded, as their sender may use them again: in the order
/// of the ring. Messages are unloaded as they are asked for, and one that waits keeps those behind
/// it from being used again.
class UnloadedSlots {
 public:
  static constexpr std::uint32_t kMost = 128;
  /// `slots`: of the ring, a power of two.
  void set_ring(std::uint32_t slots) { mask_ = slots - 1; }
  /// Uses of slots since the connection began that all are over.
  std::uint32_t uses() const { return uses_; }
  void unload(std::uint32_t slot) {
    if (slot != (uses_ & mask_) || waiting_ != 0) [[unlikely]]
      return unload_out_of_turn(slot);
    ++uses_;
  }

 private:
  void unload_out_of_turn(std::uint32_t slot);

  std::uint32_t mask_ = 0, uses_ = 0, waiting_ = 0;
  std::bitset<kMost> unloaded_;  // those behind one that waits
};

/// The blocks of all peers, registered.
class VerbsControl {
 public:
  /// Slots of each ring; together not more than an immediate can name (256), each a power of two.
  static constexpr int kShortSlots = 64, kMostLongSlots = UnloadedSlots::kMost;
  /// `eager`: the longest message that fits into a slot.
  VerbsControl(ibv_pd* domain, int ranks, Bytes eager, int long_slots, const std::string& where);

  Bytes eager() const { return eager_; }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }
  std::uint32_t local_key() const { return registered_->lkey; }
  std::uint32_t remote_key() const { return registered_->rkey; }

  SlotRing ring_for(Bytes message) const {
    return message <= kShortMessage ? SlotRing::short_ : SlotRing::long_;
  }
  /// Where its slots lie in a block.
  struct Ring {
    std::uint32_t slots = 0;
    Bytes bytes = 0, begin = 0;  // of a slot; of the first one
    Bytes end(std::uint32_t use) const {
      return begin + static_cast<Bytes>((use & (slots - 1)) + 1) * bytes;
    }
  };
  const Ring& ring(SlotRing ring) const { return rings_[ring]; }
  /// A slot among those of both rings, by its use of its ring; and back, to its place in its ring.
  int number_of(SlotRing ring, std::uint32_t use) const {
    const auto in_ring = static_cast<int>(use & (rings_[ring].slots - 1));
    return ring == SlotRing::short_ ? in_ring : kShortSlots + in_ring;
  }
  static SlotRing ring_of(int number) {
    return number < kShortSlots ? SlotRing::short_ : SlotRing::long_;
  }
  static std::uint32_t in_ring(int number) {
    return static_cast<std::uint32_t>(number < kShortSlots ? number : number - kShortSlots);
  }

  // Offsets, the same on all ranks.
  /// Of the block that a rank's peer writes.
  Bytes block_of(int peer) const { return peer * 2 * block_; }

  /// The block that a peer writes, and the one from which it is sent what it needs.
  std::byte* incoming(int peer) { return memory_.data() + block_of(peer); }
  std::byte* outgoing(int peer) { return incoming(peer) + block_; }

  static Credits& credits(std::byte* block) { return *reinterpret_cast<Credits*>(block); }
  /// As the peer may write it at any time.
  static std::uint32_t load(std::uint32_t& word) {
    return std::atomic_ref(word).load(std::memory_order_acquire);
  }
  /// The last word of a slot.
  static std::uint32_t stamp(std::byte* slot_end) {
    return load(*reinterpret_cast<std::uint32_t*>(slot_end - sizeof(std::uint32_t)));
  }
  static Envelope envelope(const std::byte* slot_end) {
    Envelope result;
    std::memcpy(&result, slot_end - sizeof result, sizeof result);
    return result;
  }

 private:
  static constexpr Bytes kShortSlot = 64;  // a cache line; all of them, about a page
  static constexpr Bytes kShortMessage = kShortSlot - static_cast<Bytes>(sizeof(Envelope));
  Bytes eager_;
  PerRing<Ring> rings_;
  Bytes block_;
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
