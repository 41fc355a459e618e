#include "transports/verbs_wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/verbs_errors.hpp"

namespace weft {
namespace {

constexpr int kBatch = 16;  // completions polled at once
// Sums up to these are made in one round. On two ranks that sends no more, but adds twice as much.
constexpr Bytes kOneShotBytes = Bytes{8} << 10, kOneShotBytesOfTwo = Bytes{32} << 10;

}  // namespace

VerbsWire::VerbsWire(Bootstrap& bootstrap, Arena& arena, const SessionOptions& options)
    : bootstrap_(bootstrap),
      arena_(arena),
      policy_(options),
      options_(options.verbs),
      eager_(options.verbs.eager),
      peers_(bootstrap, options.verbs),
      control_(peers_.control()),
      states_(static_cast<std::size_t>(peers_.size())),
      sent_(static_cast<std::size_t>(Immediate::kComms) * kChannelsPerComm * states_.size(), 0),
      arrivals_(sent_.size()) {
  for (Rank peer = 0; peer < peers_.size(); ++peer) {
    PeerState& mine = state(peer);
    mine.incoming = control_.incoming(peer);
    mine.outgoing = control_.outgoing(peer);
    // Of all blocks at the peer the one for this rank.
    mine.block =
        peers_.peer(peer).control + static_cast<std::uint64_t>(control_.block_of(peers_.rank()));
    mine.block_key = peers_.peer(peer).control_key;
    mine.queues = peers_.queues(peer);
    mine.receives_back.resize(static_cast<std::size_t>(options_.queue_pairs), 0);
    for (const SlotRing ring : kSlotRings) mine.unloaded[ring].set_ring(control_.ring(ring).slots);
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

/// Straight to where it belongs: no copies, one round. Sums of few bytes are made by everyone from
/// everyone's whole input.
std::string_view VerbsWire::preferred_algorithm(const ScheduleInput& input, DType dtype) const {
  if (input.kind != OperationKind::all_reduce) return "direct";
  const Bytes bytes = input.counts.empty() ? 0 : input.counts.front() * size_of(dtype);
  return bytes <= (input.size == 2 ? kOneShotBytesOfTwo : kOneShotBytes) ? "one-shot" : "direct";
}

// ---- receiving

// From the first to the last instruction between a message's arrival and the end of the wait for
// it: in one place, since that is where it spends its time.
inline void VerbsWire::unload(Rank peer, SlotRing ring, std::uint32_t slot, const std::byte* end,
                              const Envelope& envelope) {
  copy_message(arena_.data() + envelope.destination, end - sizeof envelope - envelope.bytes,
               envelope.bytes);
  free_slot(peer, ring, slot);
}

inline void VerbsWire::unload(Rank peer, int slot) {
  const SlotRing ring = VerbsControl::ring_of(slot);
  const std::uint32_t in_ring = VerbsControl::in_ring(slot);
  const std::byte* end = state(peer).incoming + control_.ring(ring).end(in_ring);
  unload(peer, ring, in_ring, end, VerbsControl::envelope(end));
}

inline void VerbsWire::pass_awaited() {
  Arrivals& channel = *awaited_.channel;
  channel.pass_untaken();
  if (channel.count() == awaited_.until) {
    awaited_.peer = -1;
    return;
  }
  awaited_.immediate = (awaited_.immediate & ~Immediate::kMessageMask) |
                       (static_cast<std::uint32_t>(channel.count()) & Immediate::kMessageMask);
}

[[gnu::always_inline]] inline bool VerbsWire::poll_slot(Rank peer, SlotRing ring) {
  PeerState& mine = state(peer);
  std::uint32_t& seen = mine.slots_seen[ring];
  std::byte* end = mine.incoming + control_.ring(ring).end(seen);
  if (VerbsControl::stamp(end) != seen + 1) return false;
  const std::uint32_t slot = seen++ & (control_.ring(ring).slots - 1);
  const Envelope envelope = VerbsControl::envelope(end);
  if (envelope.bytes == 0 || !is_awaited(peer, envelope.immediate)) {
    keep_slot(peer, ring, slot, envelope);
    return true;
  }
  pass_awaited();
  unload(peer, ring, slot, end, envelope);
  return true;
}

[[gnu::always_inline]] inline void VerbsWire::poll_slots(Rank peer) {
  if (!poll_slot(peer, SlotRing::short_)) poll_slot(peer, SlotRing::long_);
}

inline void VerbsWire::take(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
    fail_completion(completion);
  const WorkId id = WorkId::unpack(completion.wr_id);
  VerbsQueue& queue = peers_.queue(id.queue);
  const Rank peer = peers_.peer_of(id.queue);
  if (id.send) {
    queue.completed(id.count);
  } else {
    if (queue.consume()) [[unlikely]]
      refill(id.queue);
    take_immediate(peer, be32toh(completion.imm_data));
  }
  if (state(peer).owes) [[unlikely]]
    give_back(peer);
}

inline void VerbsWire::take_immediate(Rank peer, std::uint32_t bits) {
  const Immediate part = Immediate::unpack(bits);
  if (!is_awaited(peer, bits)) return keep(peer, part);
  pass_awaited();
  unload(peer, part.slot);
}

[[gnu::always_inline]] inline bool VerbsWire::has_come(const Channel& channel, Arrivals& arrived,
                                                       std::uint64_t at_least) {
  if (polls_memory()) poll_slots(channel.peer);
  if (arrived.next_is_whole()) deliver(channel.peer, arrived, at_least);
  return arrived.count() >= at_least;
}

[[gnu::hot]] void VerbsWire::wait(Channel channel, std::uint64_t at_least, const char* what) {
  doing_ = what;
  post_all();
  Arrivals& arrived = arrivals(channel);
  if (arrived.count() < at_least) {
    const auto next = static_cast<std::uint32_t>(arrived.count());
    awaited_ = {channel.peer, Immediate{channel.comm, channel.id, 0, 0, next}.pack(), &arrived,
                at_least};
  }
  await(
      channel.peer, [&] { return has_come(channel, arrived, at_least); },
      [&] { return channel.id == kCreditChannel ? "the ready credit" : "data"; });
  awaited_.peer = -1;
}

std::size_t VerbsWire::wait_any(std::span<const Expected> any, const char* what) {
  doing_ = what;
  std::size_t found = 0;
  const auto one_has_come = [&] {
    for (found = 0; found < any.size(); ++found) {
      const Channel& channel = any[found].channel;
      if (has_come(channel, arrivals(channel), any[found].at_least)) return true;
    }
    return false;
  };
  const Channel& first = any.front().channel;
  await(first.peer, one_has_come,
        [&] { return first.id == kCreditChannel ? "the ready credit" : "data"; });
  return found;
}

/// No message is passed on before somebody waits for it: only then is its place free.
void VerbsWire::deliver(Rank peer, Arrivals& arrivals, std::uint64_t at_least) {
  while (arrivals.count() < at_least && arrivals.next_is_whole()) {
    const int slot = arrivals.next_slot();
    arrivals.pass();
    if (slot >= 0) unload(peer, slot);
  }
}

[[gnu::hot]] void VerbsWire::poll_completions() {
  std::array<ibv_wc, kBatch> done;
  const int count = ibv_poll_cq(peers_.completions(), kBatch, done.data());
  for (int i = 0; i < count; ++i) take(done[static_cast<std::size_t>(i)]);
}

void VerbsWire::progress() {
  poll_completions();
  if (!polls_memory()) return;
  for (const Rank peer : peers_.connected()) poll_slots(peer);
}

void VerbsWire::refill(std::uint32_t number) {
  const std::int64_t given = peers_.queue(number).refill();
  if (given < 0) {
    fail(ExitCode::failed,
         fmt::format("ibv_post_recv failed ({}) on {}", std::strerror(static_cast<int>(-given)),
                     peers_.describe(number)));
  }
  PeerState& mine = state(peers_.peer_of(number));
  VerbsControl::credits(mine.outgoing).receives[peers_.ordinal_of(number)] =
      static_cast<std::uint32_t>(given);
  mine.owes = true;
}

void VerbsWire::keep(Rank peer, const Immediate& part) {
  Arrivals& to = arrivals({part.comm, part.channel, peer});
  if (to.take(part)) return;
  fail(ExitCode::failed,
       fmt::format("rank {} on {} got a message of rank {} on {} that cannot be: immediate {:#x}, "
                   "{} messages into communicator {}",
                   peers_.rank(), peers_.host(peers_.rank()), peer, peers_.host(peer), part.pack(),
                   to.count(), part.comm));
}

void VerbsWire::keep_slot(Rank peer, SlotRing ring, std::uint32_t slot, const Envelope& envelope) {
  Immediate part = Immediate::unpack(envelope.immediate);
  if (envelope.bytes == 0) {
    // A mere signal: nothing has to wait in the slot. It is free at once, not when somebody waits
    // for the signal: two ranks that send each other more of them than there are slots, before
    // either waits, would both wait for a slot.
    part.parts = 1;
    free_slot(peer, ring, slot);
  }
  keep(peer, part);
}

void VerbsWire::read_credits(Rank peer) {
  PeerState& mine = state(peer);
  Credits& given = VerbsControl::credits(mine.incoming);
  for (int q = 0; q < options_.queue_pairs; ++q) {
    std::uint32_t& known = mine.receives_back[static_cast<std::size_t>(q)];
    const std::uint32_t now = VerbsControl::load(given.receives[q]);
    peers_.queue(peer, q).add_credits(static_cast<int>(now - known));
    known = now;
  }
  for (const SlotRing ring : kSlotRings)
    mine.slots_back[ring] = VerbsControl::load(given.slots[ring]);
}

/// A WRITE of all counts: the latest holds, so those that are late do no harm.
void VerbsWire::give_back(Rank peer) {
  VerbsQueue& queue = peers_.queue(peer, 0);
  PeerState& mine = state(peer);
  if (queue.room() < 1) return;  // tried again with the next message
  for (const SlotRing ring : kSlotRings) mine.slots_told[ring] = mine.unloaded[ring].uses();
  VerbsControl::credits(mine.outgoing).slots = mine.slots_told;
  mine.owes = false;
  Work write;
  write.here = mine.outgoing;
  write.key = control_.local_key();
  write.there = mine.block;
  write.remote_key = mine.block_key;
  write.bytes = sizeof(Credits);
  write.source_is_stable = true;
  push(queue, write);
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
