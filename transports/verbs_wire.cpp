#include "transports/verbs_wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/verbs_errors.hpp"

namespace weft {
namespace {

constexpr int kBatch = 16;  // completions polled at once
constexpr Bytes kOneShotBytes = Bytes{8} << 10;
// Messages of one pair in one operation: half of what an immediate can tell apart.
constexpr std::uint32_t kWindow = 2048;

}  // namespace

VerbsWire::VerbsWire(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options)
    : bootstrap_(bootstrap),
      arena_(arena),
      policy_(options),
      options_(options.verbs),
      eager_(options.verbs.eager),
      peers_(bootstrap, options.verbs),
      states_(static_cast<std::size_t>(peers_.size())),
      sent_(static_cast<std::size_t>(Immediate::kComms) * kChannelsPerComm * states_.size(), 0),
      arrivals_(sent_.size()) {
  for (PeerState& state : states_) {
    state.receives_back.resize(static_cast<std::size_t>(options_.queue_pairs), 0);
  }
  const std::size_t queues = states_.size() * static_cast<std::size_t>(options_.queue_pairs);
  dirty_.reserve(queues);
  borrowers_.reserve(queues);
  borrows_.resize(queues, false);
}

void VerbsWire::commit(Bytes used, std::span<const Rank> peers) {
  peers_.connect(bootstrap_, peers);
  peers_.share(bootstrap_, arena_, used);
}

/// Straight to where it belongs: no copies, one round. Sums of few bytes, or of two ranks (which
/// send no more that way), are made by everyone from everyone's whole input.
std::string_view VerbsWire::preferred_algorithm(const ScheduleInput& input, DType dtype) const {
  if (input.kind != OperationKind::all_reduce) return "direct";
  const Bytes bytes = input.counts.empty() ? 0 : input.counts.front() * size_of(dtype);
  return input.size == 2 || bytes <= kOneShotBytes ? "one-shot" : "direct";
}

Arrivals& VerbsWire::arrivals(const Channel& channel) {
  auto& found = arrivals_[place(channel, channel.peer)];
  if (!found) found = std::make_unique<Arrivals>(kWindow);
  return *found;
}

// ---- receiving

void VerbsWire::wait(Channel channel, std::uint64_t at_least, const char* what) {
  doing_ = what;
  post_all();
  Arrivals& arrived = arrivals(channel);
  await(
      channel.peer,
      [&] {
        if (polls_memory()) poll_slots(channel.peer);
        if (arrived.next_is_whole()) deliver(channel, arrived, at_least);
        return arrived.count() >= at_least;
      },
      [&] { return channel.id == kCreditChannel ? "the ready credit" : "data"; });
}

/// No message is passed on before somebody waits for it: only then is its place free.
void VerbsWire::deliver(const Channel& channel, Arrivals& arrivals, std::uint64_t at_least) {
  VerbsControl& control = peers_.control();
  PeerState& mine = state(channel.peer);
  while (arrivals.count() < at_least && arrivals.next_is_whole()) {
    if (const int slot = arrivals.next_slot(); slot >= 0) {
      const SlotRing ring = VerbsControl::ring_of(slot);
      const std::uint32_t use = VerbsControl::use_of(slot);
      const Envelope envelope = control.envelope(channel.peer, ring, use);
      if (envelope.bytes > 0) {
        const std::byte* end = control.at(control.slot_end(channel.peer, ring, use));
        std::memcpy(arena_.data() + envelope.destination, end - sizeof envelope - envelope.bytes,
                    envelope.bytes);
      }
      ++mine.slots_freed[ring];
    }
    arrivals.pass();
  }
  tell_freed_slots(channel.peer);
}

void VerbsWire::tell_freed_slots(Rank peer) {
  const PeerState& mine = state(peer);
  for (const SlotRing ring : kSlotRings) {
    const std::uint32_t untold = mine.slots_freed[ring] - mine.slots_told[ring];
    if (untold >= peers_.control().slots(ring) / 2) return give_back(peer);
  }
}

void VerbsWire::poll_completions() {
  std::array<ibv_wc, kBatch> done;
  const int count = ibv_poll_cq(peers_.completions(), kBatch, done.data());
  for (int i = 0; i < count; ++i) take(done[static_cast<std::size_t>(i)]);
}

void VerbsWire::progress() {
  poll_completions();
  if (!polls_memory()) return;
  for (const Rank peer : peers_.connected()) poll_slots(peer);
}

void VerbsWire::take(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) fail_completion(completion);
  const WorkId id = WorkId::unpack(completion.wr_id);
  VerbsQueue& queue = peers_.queue(id.queue);
  const Rank peer = peers_.peer_of(id.queue);
  id.send ? queue.completed(id.count) : take_receive(id.queue, be32toh(completion.imm_data));
  if (state(peer).owes) give_back(peer);
}

void VerbsWire::take_receive(std::uint32_t number, std::uint32_t bits) {
  VerbsQueue& queue = peers_.queue(number);
  const Rank peer = peers_.peer_of(number);
  if (queue.consume()) {
    const std::int64_t given = queue.refill();
    if (given < 0) {
      fail(ExitCode::failed,
           fmt::format("ibv_post_recv failed ({}) on {}", std::strerror(static_cast<int>(-given)),
                       peers_.describe(number)));
    }
    peers_.control().outgoing_credits(peer).receives[peers_.ordinal_of(number)] =
        static_cast<std::uint32_t>(given);
    state(peer).owes = true;
  }
  take_immediate(peer, bits);
}

void VerbsWire::take_immediate(Rank peer, std::uint32_t bits) {
  const Immediate part = Immediate::unpack(bits);
  if (!arrivals({part.comm, part.channel, peer}).take(part)) {
    fail(
        ExitCode::failed,
        fmt::format("rank {} on {} got a message of rank {} on {} that cannot be: immediate {:#x}, "
                    "{} messages into communicator {}",
                    peers_.rank(), peers_.host(peers_.rank()), peer, peers_.host(peer), bits,
                    arrivals({part.comm, part.channel, peer}).count(), part.comm));
  }
}

void VerbsWire::poll_slots(Rank peer, SlotRing ring) {
  VerbsControl& control = peers_.control();
  PeerState& mine = state(peer);
  std::uint32_t& seen = mine.slots_seen[ring];
  while (control.stamp(peer, ring, seen) == seen + 1) {
    const Envelope envelope = control.envelope(peer, ring, seen++);
    Immediate part = Immediate::unpack(envelope.immediate);
    if (envelope.bytes == 0) {  // a mere signal: nothing has to wait in the slot
      part.parts = 1;
      ++mine.slots_freed[ring];
    }
    take_immediate(peer, part.pack());
  }
}

void VerbsWire::poll_slots(Rank peer) {
  for (const SlotRing ring : kSlotRings) poll_slots(peer, ring);
  // Here too, and not just where somebody waits for a message: two ranks that send each other more
  // signals than there are slots, before either waits, would both wait for a slot.
  tell_freed_slots(peer);
}

void VerbsWire::read_credits(Rank peer) {
  VerbsControl& control = peers_.control();
  PeerState& mine = state(peer);
  for (int q = 0; q < options_.queue_pairs; ++q) {
    std::uint32_t& known = mine.receives_back[static_cast<std::size_t>(q)];
    const std::uint32_t now = control.receives_back(peer, q);
    peers_.queue(peer, q).add_credits(static_cast<int>(now - known));
    known = now;
  }
  for (const SlotRing ring : kSlotRings) mine.slots_back[ring] = control.slots_back(peer, ring);
}

/// A WRITE of all counts: the latest holds, so those that are late do no harm.
void VerbsWire::give_back(Rank peer) {
  VerbsQueue& queue = peers_.queue(peer, 0);
  PeerState& mine = state(peer);
  if (queue.room() < 1) return;  // tried again with the next message
  VerbsControl& control = peers_.control();
  control.outgoing_credits(peer).slots = mine.slots_told = mine.slots_freed;
  mine.owes = false;
  const VerbsPeer& theirs = peers_.peer(peer);
  Work write;
  write.here = reinterpret_cast<const std::byte*>(&control.outgoing_credits(peer));
  write.key = control.local_key();
  write.there = theirs.control + static_cast<std::uint64_t>(control.credits_of(peers_.rank()));
  write.remote_key = theirs.control_key;
  write.bytes = sizeof(Credits);
  write.source_is_stable = true;
  push(peer, 0, queue, write);
  post_all();
}

// ---- errors

void VerbsWire::fail_completion(const ibv_wc& completion) const {
  const WorkId id = WorkId::unpack(completion.wr_id);
  const bool unreachable =
      completion.status == IBV_WC_RETRY_EXC_ERR || completion.status == IBV_WC_RNR_RETRY_EXC_ERR;
  const std::string event = peers_.device().events->last();
  fail(unreachable ? ExitCode::timed_out : ExitCode::failed,
       fmt::format("{}: {} (vendor error {:#x}) while {}; {}{}", peers_.describe(id.queue),
                   completion_text(completion.status), completion.vendor_err, doing_,
                   completion_remedy(completion.status), event.empty() ? "" : "; " + event));
}

void VerbsWire::fail_missing(Rank peer, const std::string& missing) const {
  const std::string event = peers_.device().events->last();
  fail(ExitCode::timed_out,
       fmt::format("rank {} on {} waited {:.1f} s for {} of rank {} on {} in {}; see whether that "
                   "rank lives, or raise --timeout{}",
                   peers_.rank(), peers_.host(peers_.rank()), policy_.timeout().count(), missing,
                   peer, peers_.host(peer), doing_, event.empty() ? "" : "; " + event));
}

std::unique_ptr<Transport> make_verbs_transport(Bootstrap& bootstrap, Arena& arena,
                                                const SessionOptions& options) {
  return std::make_unique<VerbsWire>(bootstrap, arena, options);
}

}  // namespace weft
