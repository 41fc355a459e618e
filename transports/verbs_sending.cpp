// What a rank sends: WRITEs to where they belong, or into a slot of the peer.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/verbs_wire.hpp"

namespace weft {
namespace {

constexpr int kReserve = 4;  // of a send queue's room, for credits

}  // namespace

Work VerbsWire::on_arena(Rank peer, Bytes here, Bytes there, Bytes n) const {
  const VerbsPeer& theirs = peers_.peer(peer);
  Work work;
  work.here = arena_.data() + here;
  work.key = peers_.arena_key();
  work.there = theirs.arena + static_cast<std::uint64_t>(there);
  work.remote_key = theirs.arena_key;
  work.bytes = n;
  return work;
}

void VerbsWire::put(Channel channel, Bytes source, Bytes destination, Bytes n) {
  // On the queue of the signal that follows: reliable connections keep their own order only.
  const int index = queue_of(sent_[place(channel, channel.peer)]);
  VerbsQueue& queue = ready(channel.peer, index, false);
  push(channel.peer, index, queue, on_arena(channel.peer, source, destination, n));
}

void VerbsWire::signal(Channel channel) {
  if (options_.signal == SignalMode::write) {
    send_eagerly(channel, 0, 0, 0);
    return;
  }
  std::uint64_t& sent = sent_[place(channel, channel.peer)];
  const int index = queue_of(sent);
  VerbsQueue& queue = ready(channel.peer, index, true);
  Work write = on_arena(channel.peer, 0, 0, 0);
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
    const int index = send_eagerly(channel, source, destination, n);
    pieces_[0] = {static_cast<std::uint16_t>(index), n};
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

/// Message number `message` to or from a peer: all of it on one queue pair, or parts of it on all.
/// post(queue, at, bytes, parts) posts each. Returns what was posted.
template <class Post>
std::span<const PostedPart> VerbsWire::in_parts(Rank peer, std::uint64_t message, Bytes n,
                                                Post post) {
  const Bytes mtu = bytes_of(peers_.peer(peer).path.mtu);
  const auto queues = static_cast<Bytes>(options_.queue_pairs);
  const Bytes packets = (n + mtu - 1) / mtu;
  const Bytes parts = options_.mode == QueuePairMode::split ? std::min(queues, packets) : 1;
  Bytes at = 0;
  for (Bytes part = 0; part < parts; ++part) {
    // Whole packets but for the end, as even as they go.
    const Bytes end = part + 1 == parts ? n : packets * (part + 1) / parts * mtu;
    const int index = queue_of(message + static_cast<std::uint64_t>(part));
    post(index, at, end - at, static_cast<int>(parts));
    pieces_[static_cast<std::size_t>(part)] = {static_cast<std::uint16_t>(index), end - at};
    at = end;
  }
  return {pieces_.data(), static_cast<std::size_t>(parts)};
}

/// Each part ends with an immediate of its own.
std::span<const PostedPart> VerbsWire::send_parts(Channel channel, Bytes source, Bytes destination,
                                                  Bytes n) {
  const std::uint64_t message = sent_[place(channel, channel.peer)]++;
  return in_parts(channel.peer, message, n, [&](int index, Bytes at, Bytes bytes, int parts) {
    VerbsQueue& queue = ready(channel.peer, index, true);
    Work work = on_arena(channel.peer, source + at, destination + at, bytes);
    work.payload = bytes;
    work.immediate =
        Immediate{channel.comm, channel.id, parts, 0, static_cast<std::uint32_t>(message)}.pack();
    push(channel.peer, index, queue, work);
  });
}

std::span<const PostedPart> VerbsWire::fetch(Channel channel, Bytes source, Bytes destination,
                                             Bytes n) {
  const std::uint64_t message = state(channel.peer).fetched++;
  return in_parts(channel.peer, message, n, [&](int index, Bytes at, Bytes bytes, int) {
    VerbsQueue& queue = ready(channel.peer, index, false);
    Work work = on_arena(channel.peer, destination + at, source + at, bytes);
    work.reads = true;
    work.payload = bytes;
    push(channel.peer, index, queue, work);
  });
}

/// Into the next slot of the peer, from one of the same form here: whoever called may overwrite the
/// source at once. Returns the index of the queue.
int VerbsWire::send_eagerly(Channel channel, Bytes source, Bytes destination, Bytes n) {
  VerbsControl& control = peers_.control();
  const SlotRing ring = control.ring_for(n);
  wait_for_slot(channel.peer, ring);
  std::uint64_t& sent = sent_[place(channel, channel.peer)];
  const int index = queue_of(sent);
  const bool immediate = options_.signal == SignalMode::immediate;
  VerbsQueue& queue = ready(channel.peer, index, immediate);
  const std::uint32_t use = state(channel.peer).slots_used[ring]++;
  const std::uint32_t bits = Immediate{channel.comm, channel.id, 0, control.number_of(ring, use),
                                       static_cast<std::uint32_t>(sent)}
                                 .pack();
  ++sent;
  const Envelope envelope{static_cast<std::uint64_t>(destination), static_cast<std::uint32_t>(n),
                          bits, 0, use + 1};
  // What a rank writes to peer p lies where p's block for this rank is: its place among p's peers.
  std::byte* end = control.at(control.slot_end(channel.peer, ring, use) + control.outgoing());
  const auto whole = n + static_cast<Bytes>(sizeof envelope);
  std::memcpy(end - sizeof envelope, &envelope, sizeof envelope);
  std::memcpy(end - whole, arena_.data() + source, static_cast<std::size_t>(n));
  const VerbsPeer& theirs = peers_.peer(channel.peer);
  Work write;
  write.here = end - whole;
  write.key = control.local_key();
  write.there = theirs.control +
                static_cast<std::uint64_t>(control.slot_end(peers_.rank(), ring, use) - whole);
  write.remote_key = theirs.control_key;
  write.bytes = whole;
  write.payload = n;
  write.source_is_stable = true;
  if (immediate) write.immediate = bits;
  push(channel.peer, index, queue, write);
  return index;
}

VerbsQueue& VerbsWire::ready(Rank peer, int index, bool immediate) {
  VerbsQueue& queue = peers_.queue(peer, index);
  const auto is_ready = [&] {
    return queue.room() > kReserve && (!immediate || queue.credits() > 0);
  };
  if (is_ready()) return queue;
  await(
      peer,
      [&] {
        read_credits(peer);
        return is_ready();
      },
      [&] { return immediate && queue.credits() <= 0 ? "free receives" : "acknowledgements"; });
  return queue;
}

void VerbsWire::wait_for_slot(Rank peer, SlotRing ring) {
  const PeerState& mine = state(peer);
  const auto is_free = [&] {
    return mine.slots_used[ring] - mine.slots_back[ring] < peers_.control().slots(ring);
  };
  if (is_free()) return;
  await(
      peer,
      [&] {
        read_credits(peer);
        return is_free();
      },
      [] { return "a free slot"; });
}

void VerbsWire::push(Rank peer, int index, VerbsQueue& queue, const Work& work) {
  const std::uint32_t number = peers_.number_of(peer, index);
  if (!queue.anything_queued()) dirty_.push_back(number);
  if (queue.queue(work) && !borrows_[number]) {
    borrows_[number] = true;
    borrowers_.push_back(number);
  }
  if (queue.list_is_full()) post_all();
}

void VerbsWire::post_all() {
  for (const std::uint32_t number : dirty_) {
    const int error = peers_.queue(number).post();
    if (error) {
      fail(ExitCode::failed, fmt::format("ibv_post_send failed ({}) on {}", std::strerror(error),
                                         peers_.describe(number)));
    }
  }
  dirty_.clear();
}

void VerbsWire::flush() {
  post_all();
  for (const std::uint32_t number : borrowers_) {
    const VerbsQueue& queue = peers_.queue(number);
    await(
        peers_.peer_of(number), [&] { return queue.is_idle(); }, [] { return "acknowledgements"; });
    borrows_[number] = false;
  }
  borrowers_.clear();
}

}  // namespace weft
