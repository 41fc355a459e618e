// What the native forms of shm have in common: the two rendezvous, and recording. Private to
// shm_native*.cpp.
#pragma once

#include <cstring>

#include "transports/shm_copy.hpp"
#include "transports/shm_native.hpp"

namespace weft {

inline constexpr Bytes kFlagBytes = sizeof(Flag);

class ShmOperation : public NativeOperation {
 protected:
  ShmOperation(const ShmContext& context, ShmGroup* group, const NativeInput& input)
      : context_(context),
        group_(group),
        recorder_(*input.recorder),
        what_(input.what),
        me_(input.me),
        dim_(input.dim),
        members_(input.members) {}

  /// `bare` leaves all flags out, but while messages are recorded.
  bool silent() const { return context_.settings.bare && !recorder_.enabled(); }

  /// Tells all that this rank's buffers are ready; returns the operation's number.
  std::uint64_t arrive() {
    const std::uint64_t k = group_->enter();
    group_->own().arrived.publish(k);
    group_->own().done.fetch();
    return k;
  }
  /// fn(member) for each other member that has arrived.
  template <class Fn>
  void each_arrived(std::uint64_t k, Fn fn) {
    group_->each(
        k, [](const Board& b) -> const Flag& { return b.arrived; },
        [&](int member) {
          record(member, me_, kFlagBytes, MessageKind::control, post_time_us());
          fn(member);
        },
        "the ready flag", what_.c_str());
  }
  /// Ends when all are done with this rank's buffers.
  void leave(std::uint64_t k) {
    group_->own().done.publish(k);
    group_->each(
        k, [](const Board& b) -> const Flag& { return b.done; },
        [&](int member) { record(member, me_, kFlagBytes, MessageKind::control, post_time_us()); },
        "the done flag", what_.c_str());
    group_->own().arrived.fetch();
  }
  /// Publishes n bytes beside the flag of this operation's slot.
  std::uint64_t arrive_with(const std::byte* data, Bytes n) {
    const std::uint64_t k = group_->enter();
    Slot& slot = group_->own().slots[k % 2];
    if (n > 0) std::memcpy(slot.payload, data, static_cast<std::size_t>(n));
    slot.flag.publish(k);
    return k;
  }
  template <class Fn>
  void each_slot(std::uint64_t k, Fn fn) {
    group_->each(
        k, [k](const Board& b) -> const Flag& { return b.slots[k % 2].flag; },
        [&](int member) {
          record(member, me_, kFlagBytes, MessageKind::control, post_time_us());
          fn(member, group_->board(member).slots[k % 2].payload);
        },
        "data", what_.c_str());
    group_->own().slots[(k + 1) % 2].flag.fetch();  // everyone is past that one
  }

  void copy(std::byte* to, const std::byte* from, Bytes n) const {
    if (n == 0 || to == from) return;
    const auto size = static_cast<std::size_t>(n);
    if (context_.streams(n, context_.settings.thresholds.exchange_streaming_caches)) {
      copy_streaming(to, from, size);
    } else {
      std::memcpy(to, from, size);
    }
  }

  double post_time_us() const { return recorder_.enabled() ? message_time_us() : 0; }
  /// By group index; a message of no bytes is none.
  void record(int from, int to, Bytes bytes, MessageKind kind, double posted_us) {
    if (!recorder_.enabled() || bytes == 0) return;
    const auto member = [&](int i) { return members_[static_cast<std::size_t>(i)]; };
    recorder_.append({.source = member(from).rank,
                      .destination = member(to).rank,
                      .bytes = bytes,
                      .channel = 0,
                      .kind = kind,
                      .dim = dim_,
                      .network = member(from == me_ ? to : from).network,
                      .posted_us = posted_us,
                      .completed_us = message_time_us()});
  }

  const ShmContext& context_;
  ShmGroup* group_;  // none in a group of one
  FlowRecorder& recorder_;
  std::string what_;
  int me_;
  Dimension dim_;
  std::vector<NativeMember> members_;
};

}  // namespace weft
