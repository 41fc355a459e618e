// Flags in shared memory: who publishes what, in which order, on which cache line.
//
// A flag is a counter that one rank writes and others poll. The writer publishes with one store of
// order kPublish after everything that the flag promises; a reader that saw the value with kObserve
// sees all of that. A broken order is what no timing test finds reliably, so it is one constant
// here: a test build may weaken it, and ThreadSanitizer must then report the data behind the flag.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "patterns/types.hpp"

namespace weft {

#if defined(WEFT_MUTATION_RELAXED_FLAG)
inline constexpr std::memory_order kPublish = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kPublish = std::memory_order_release;
#endif
inline constexpr std::memory_order kObserve = std::memory_order_acquire;

inline constexpr int kMaxShmRanks = 64;
/// Flags of different meaning lie two lines apart: the processor fetches lines in pairs.
inline constexpr std::size_t kFlagSpacing = 128;

/// Zero until first published; never goes back.
class Flag {
 public:
  void publish(std::uint64_t value) { value_.store(value, kPublish); }
  /// Takes the line back from those who polled it, ahead of the next publish(), which then need not
  /// wait for that. Changes nothing else.
  void fetch() const { __builtin_prefetch(&value_, 1); }
  bool reached(std::uint64_t value) const { return value_.load(kObserve) >= value; }

 private:
  std::atomic<std::uint64_t> value_;
};
static_assert(sizeof(Flag) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

/// A flag alone on its line.
struct alignas(64) LineFlag : Flag {};

/// A small message: the flag and, right behind it on the same line, what it announces.
struct alignas(kFlagSpacing) Slot {
  static constexpr Bytes kBytes = 4 << 10;
  static constexpr Bytes kPayload = kBytes - static_cast<Bytes>(sizeof(Flag));

  Flag flag;
  std::byte payload[kPayload];
};
static_assert(sizeof(Slot) == Slot::kBytes);

/// Where a reader finds its part of an exchange whose counts only the sender knows.
struct PulledPart {
  Bytes place = 0;  // in the sender's arena
  Bytes bytes = 0;
};

/// What one rank publishes to the members of one communicator; it alone writes here. `done` closes
/// an operation that read or wrote a peer's buffers. Operations that do not need it alternate
/// between two slots, and two suffice: a rank that writes the slot of operation k has finished k-1,
/// so every peer has entered k-1, so every peer has finished reading the slot of k-2.
struct Board {
  alignas(kFlagSpacing) LineFlag arrived;
  alignas(kFlagSpacing) LineFlag done;
  alignas(kFlagSpacing) PulledPart parts[kMaxShmRanks];  // by group index of the reader
  Slot slots[2];
};

}  // namespace weft
