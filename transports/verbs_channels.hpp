// What arrived, by channel: immediates say which message of which channel they belong to, and a
// message counts when all its parts are there and all messages before it are. Queue pairs overtake
// each other; this puts their messages in order. Private to verbs*.cpp and their tests.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transports/transport.hpp"

namespace weft {

/// 32 bits of an immediate: communicator 6, channel 1, parts 5 (0: the message waits in a slot),
/// slot 8, message 12.
struct Immediate {
  CommId comm = 0;
  std::uint16_t channel = 0;
  int parts = 1;
  int slot = 0;
  std::uint32_t message = 0;  // count of the channel, low bits

  static constexpr CommId kComms = 64;
  static constexpr std::uint32_t kMessageMask = 0xFFF, kSlotMask = 0xFF000;
  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(comm) << 26 | static_cast<std::uint32_t>(channel) << 25 |
           static_cast<std::uint32_t>(parts) << 20 | slot_and_message(slot, message);
  }
  /// The bits of these two alone.
  static std::uint32_t slot_and_message(int slot, std::uint64_t message) {
    return static_cast<std::uint32_t>(slot) << 12 |
           (static_cast<std::uint32_t>(message) & kMessageMask);
  }
  static Immediate unpack(std::uint32_t bits) {
    return {static_cast<CommId>(bits >> 26), static_cast<std::uint16_t>(bits >> 25 & 1),
            static_cast<int>(bits >> 20 & 31), static_cast<int>(bits >> 12 & 255),
            bits & kMessageMask};
  }
};

/// Messages of one channel from one peer.
class Arrivals {
 public:
  /// `window`: how many messages may be under way at once; a power of two, at most 2048.
  explicit Arrivals(std::uint32_t window) : entries_(window), mask_(window - 1) {}

  /// A part of a message arrived. False if the message cannot be: no sender is so far ahead.
  bool take(const Immediate& part);
  /// Messages that count: those up to the first that is not whole.
  std::uint64_t count() const { return count_; }
  /// The next message counts, without having been taken.
  void pass_untaken() { ++count_; }
  /// The next message is whole; its slot, or -1 if its bytes are where they belong.
  bool next_is_whole() const {
    const Entry& next = entry(count_);
    return next.parts > 0 && next.seen == next.parts;
  }
  int next_slot() const { return entry(count_).slot; }
  void pass() { entry(count_++) = {}; }

 private:
  struct Entry {
    std::uint8_t seen = 0, parts = 0;
    std::int16_t slot = -1;
  };
  Entry& entry(std::uint64_t message) { return entries_[message & mask_]; }
  const Entry& entry(std::uint64_t message) const { return entries_[message & mask_]; }

  std::vector<Entry> entries_;
  std::uint64_t mask_;
  std::uint64_t count_ = 0;
};

}  // namespace weft
