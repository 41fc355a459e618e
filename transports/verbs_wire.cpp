#include "transports/verbs_wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/verbs_errors.hpp"

namespace weft {
namespace {

constexpr int kBatch = 16;   // completions polled at once
constexpr int kReserve = 4;  // of a send queue's room, for credits
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
  dirty_.reserve(states_.size() * static_cast<std::size_t>(options_.queue_pairs));
}

void VerbsWire::commit(Bytes used) { peers_.share(bootstrap_, arena_, used); }

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

// ---- sending

Write VerbsWire::to_arena(Rank peer, Bytes source, Bytes destination, Bytes n) const {
  const VerbsPeer& theirs = peers_.peer(peer);
  Write write;
  write.from = arena_.data() + source;
  write.key = peers_.arena_key();
  write.to = theirs.arena + static_cast<std::uint64_t>(destination);
  write.remote_key = theirs.arena_key;
  write.bytes = n;
  return write;
}

void VerbsWire::put(Channel channel, Bytes source, Bytes destination, Bytes n) {
  // On the queue of the signal that follows: reliable connections keep their own order only.
  const int index = static_cast<int>(sent_[place(channel, channel.peer)] %
                                     static_cast<std::uint64_t>(options_.queue_pairs));
  VerbsQueue& queue = ready(channel.peer, index, false);
  push(channel.peer, index, queue, to_arena(channel.peer, source, destination, n));
}

void VerbsWire::signal(Channel channel) {
  if (options_.signal == SignalMode::write) return send_eagerly(channel, 0, 0, 0);
  std::uint64_t& sent = sent_[place(channel, channel.peer)];
  const int index = static_cast<int>(sent % static_cast<std::uint64_t>(options_.queue_pairs));
  VerbsQueue& queue = ready(channel.peer, index, true);
  Write write = to_arena(channel.peer, 0, 0, 0);
  write.immediate =
      Immediate{channel.comm, channel.id, 1, 0, static_cast<std::uint32_t>(sent)}.pack();
  ++sent;
  push(channel.peer, index, queue, write);
}

std::span<const PostedPart> VerbsWire::send(Channel channel, Bytes source, Bytes destination,
                                            Bytes n, bool credited) {
  if (n == 0) {
    signal(channel);
    return {};
  }
  if (!credited) {
    const auto index = static_cast<std::uint16_t>(sent_[place(channel, channel.peer)] %
                                                  static_cast<std::uint64_t>(options_.queue_pairs));
    pieces_[0] = {index, n};
    send_eagerly(channel, source, destination, n);
    return {pieces_.data(), 1};
  }
  if (options_.signal == SignalMode::write) {
    put(channel, source, destination, n);
    send_eagerly(channel, 0, 0, 0);
    pieces_[0] = {0, n};
    return {pieces_.data(), 1};
  }
  return send_parts(channel, source, destination, n);
}

/// All of a message on one queue pair, or parts of it on all: each part ends with an immediate of
/// its own.
std::span<const PostedPart> VerbsWire::send_parts(Channel channel, Bytes source, Bytes destination,
                                                  Bytes n) {
  std::uint64_t& sent = sent_[place(channel, channel.peer)];
  const Bytes mtu = bytes_of(peers_.peer(channel.peer).path.mtu);
  const auto queues = static_cast<Bytes>(options_.queue_pairs);
  const Bytes packets = (n + mtu - 1) / mtu;
  const Bytes parts = options_.mode == QueuePairMode::split ? std::min(queues, packets) : 1;
  Bytes at = 0;
  for (Bytes part = 0; part < parts; ++part) {
    // Whole packets but for the end, as even as they go.
    const Bytes end = part + 1 == parts ? n : packets * (part + 1) / parts * mtu;
    const int index = static_cast<int>((static_cast<Bytes>(sent) + part) % queues);
    VerbsQueue& queue = ready(channel.peer, index, true);
    Write write = to_arena(channel.peer, source + at, destination + at, end - at);
    write.payload = end - at;
    write.immediate = Immediate{channel.comm, channel.id, static_cast<int>(parts), 0,
                                static_cast<std::uint32_t>(sent)}
                          .pack();
    push(channel.peer, index, queue, write);
    pieces_[static_cast<std::size_t>(part)] = {static_cast<std::uint16_t>(index), end - at};
    at = end;
  }
  ++sent;
  return {pieces_.data(), static_cast<std::size_t>(parts)};
}

/// Into the next slot of the peer, from one of the same form here: whoever called may overwrite the
/// source at once.
void VerbsWire::send_eagerly(Channel channel, Bytes source, Bytes destination, Bytes n) {
  wait_for_slot(channel.peer);
  std::uint64_t& sent = sent_[place(channel, channel.peer)];
  const int index = static_cast<int>(sent % static_cast<std::uint64_t>(options_.queue_pairs));
  const bool immediate = options_.signal == SignalMode::immediate;
  VerbsQueue& queue = ready(channel.peer, index, immediate);
  VerbsControl& control = peers_.control();
  const std::uint32_t use = state(channel.peer).slots_used++;
  const auto slot = static_cast<int>(use % static_cast<std::uint32_t>(control.slots()));
  const std::uint32_t bits =
      Immediate{channel.comm, channel.id, 0, slot, static_cast<std::uint32_t>(sent)}.pack();
  ++sent;
  const Envelope envelope{static_cast<std::uint64_t>(destination), static_cast<std::uint32_t>(n),
                          bits, 0, use + 1};
  // What a rank writes to peer p lies where p's block for this rank is: its place among p's peers.
  std::byte* end = control.at(control.slot_end(channel.peer, use) + control.outgoing());
  const auto whole = n + static_cast<Bytes>(sizeof envelope);
  std::memcpy(end - sizeof envelope, &envelope, sizeof envelope);
  std::memcpy(end - whole, arena_.data() + source, static_cast<std::size_t>(n));
  const VerbsPeer& theirs = peers_.peer(channel.peer);
  Write write;
  write.from = end - whole;
  write.key = control.local_key();
  write.to =
      theirs.control + static_cast<std::uint64_t>(control.slot_end(peers_.rank(), use) - whole);
  write.remote_key = theirs.control_key;
  write.bytes = whole;
  write.payload = n;
  write.source_is_stable = true;
  if (immediate) write.immediate = bits;
  push(channel.peer, index, queue, write);
}

VerbsQueue& VerbsWire::ready(Rank peer, int index, bool immediate) {
  VerbsQueue& queue = peers_.queue(peer, index);
  const auto is_ready = [&] {
    return queue.room() > kReserve && (!immediate || queue.credits() > 0);
  };
  if (is_ready()) return queue;
  Patience patience(policy_);
  while (!is_ready()) {
    post_all();
    progress();
    read_credits(peer);
    if (!is_ready() && !patience.pause()) {
      fail_missing(peer, immediate && queue.credits() <= 0 ? "receives for its messages"
                                                           : "completions of its WRITEs to");
    }
  }
  return queue;
}

void VerbsWire::wait_for_slot(Rank peer) {
  const auto is_free = [&] {
    const PeerState& mine = state(peer);
    return mine.slots_used - mine.slots_back < static_cast<std::uint32_t>(peers_.control().slots());
  };
  if (is_free()) return;
  Patience patience(policy_);
  while (!is_free()) {
    post_all();
    progress();
    read_credits(peer);
    if (!is_free() && !patience.pause()) fail_missing(peer, "a free slot");
  }
}

void VerbsWire::push(Rank peer, int index, VerbsQueue& queue, const Write& write) {
  if (!queue.anything_queued()) dirty_.push_back(peers_.number_of(peer, index));
  queue.queue(write);
  if (queue.list_is_full()) post_all();
}

void VerbsWire::post_all() {
  for (const std::uint32_t number : dirty_) {
    if (const int error = peers_.queue(number).post(); error != 0) {
      fail(ExitCode::failed, fmt::format("ibv_post_send failed ({}) on {}", std::strerror(error),
                                         peers_.describe(number)));
    }
  }
  dirty_.clear();
}

void VerbsWire::flush() {
  post_all();
  for (Rank peer = 0; peer < peers_.size(); ++peer) {
    if (peer == peers_.rank()) continue;
    for (int q = 0; q < options_.queue_pairs; ++q) {
      VerbsQueue& queue = peers_.queue(peer, q);
      Patience patience(policy_);
      while (!queue.sources_are_free()) {
        progress();
        if (!queue.sources_are_free() && !patience.pause()) {
          fail_missing(peer, "completions of its WRITEs to");
        }
      }
    }
  }
}

// ---- receiving

void VerbsWire::wait(Channel channel, std::uint64_t at_least, const char* what) {
  doing_ = what;
  post_all();
  Arrivals& arrived = arrivals(channel);
  deliver(channel, arrived, at_least);
  if (arrived.count() >= at_least) return;
  Patience patience(policy_);
  for (;;) {
    progress();
    if (options_.signal == SignalMode::write) poll_slots(channel.peer);
    deliver(channel, arrived, at_least);
    if (arrived.count() >= at_least) return;
    if (!patience.pause()) {
      fail_missing(channel.peer, channel.id == kCreditChannel ? "the ready credit" : "data");
    }
  }
}

/// No message is passed on before somebody waits for it: only then is its place free.
void VerbsWire::deliver(const Channel& channel, Arrivals& arrivals, std::uint64_t at_least) {
  VerbsControl& control = peers_.control();
  PeerState& mine = state(channel.peer);
  while (arrivals.count() < at_least && arrivals.next_is_whole()) {
    if (const int slot = arrivals.next_slot(); slot >= 0) {
      const auto use = static_cast<std::uint32_t>(slot);
      const Envelope envelope = control.envelope(channel.peer, use);
      if (envelope.bytes > 0) {
        std::memcpy(
            arena_.data() + envelope.destination,
            control.at(control.slot_end(channel.peer, use)) - sizeof envelope - envelope.bytes,
            envelope.bytes);
      }
      ++mine.slots_freed;
    }
    arrivals.pass();
  }
  if (mine.slots_freed - mine.slots_told >= static_cast<std::uint32_t>(control.slots()) / 2) {
    give_back(channel.peer);
  }
}

void VerbsWire::progress() {
  std::array<ibv_wc, kBatch> done;
  const int count = ibv_poll_cq(peers_.completions(), kBatch, done.data());
  for (int i = 0; i < count; ++i) take(done[static_cast<std::size_t>(i)]);
  if (options_.signal == SignalMode::write) {
    for (Rank peer = 0; peer < peers_.size(); ++peer) {
      if (peer != peers_.rank()) poll_slots(peer);
    }
  }
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

void VerbsWire::poll_slots(Rank peer) {
  VerbsControl& control = peers_.control();
  PeerState& mine = state(peer);
  while (control.stamp(peer, mine.slots_seen) == mine.slots_seen + 1) {
    const Envelope envelope = control.envelope(peer, mine.slots_seen++);
    Immediate part = Immediate::unpack(envelope.immediate);
    if (envelope.bytes == 0) {  // a mere signal: nothing has to wait in the slot
      part.parts = 1;
      ++mine.slots_freed;
    }
    take_immediate(peer, part.pack());
  }
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
  mine.slots_back = control.slots_back(peer);
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
  Write write;
  write.from = reinterpret_cast<const std::byte*>(&control.outgoing_credits(peer));
  write.key = control.local_key();
  write.to = theirs.control + static_cast<std::uint64_t>(control.credits_of(peers_.rank()));
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
