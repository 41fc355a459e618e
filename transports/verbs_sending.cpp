// What a rank sends: WRITEs to where they belong, or into a slot of the peer.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "patterns/error.hpp"
#include "transports/touch.hpp"
#include "transports/verbs_wire.hpp"

namespace weft {

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
  push(queue, on_arena(channel.peer, source, destination, n));
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
  push(queue, write);
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
    push(queue, work);
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
    push(queue, work);
  });
}

VerbsWire::SlotMessage VerbsWire::slot_message(const Channel& channel, Bytes source,
                                               Bytes destination, Bytes n) {
  Envelope envelope;
  envelope.destination = static_cast<std::uint64_t>(destination);
  envelope.bytes = static_cast<std::uint64_t>(n);
  envelope.immediate = Immediate{channel.comm, channel.id, 0, 0, 0}.pack();
  return {channel.peer,           control_.ring_for(n),
          &state(channel.peer),   &sent_[place(channel, channel.peer)],
          arena_.data() + source, envelope};
}

VerbsWire::SlotPlace VerbsWire::slot_place(const SlotMessage& message, std::uint32_t use) const {
  const PeerState& mine = *message.state;
  const Bytes begin = control_.ring(message.ring).end(use) -
                      static_cast<Bytes>(message.envelope.bytes + sizeof(Envelope));
  return {use, Immediate::slot_and_message(control_.number_of(message.ring, use), 0),
          mine.outgoing + begin, mine.block + static_cast<std::uint64_t>(begin)};
}

/// Takes the next slot of the peer, whose place this is, and puts the message into one of the same
/// form here: whoever called may overwrite the source at once.
[[gnu::always_inline]] inline VerbsWire::TakenSlot VerbsWire::take_slot(const SlotMessage& message,
                                                                        const SlotPlace& place) {
  PeerState& mine = *message.state;
  if (!slot_is_free(mine, message.ring)) [[unlikely]]
    wait_for_slot(message.peer, message.ring);
  const int index = queue_of(*message.sent);
  VerbsQueue& queue = *mine.queues[index];
  if (!is_ready(queue, !polls_memory())) [[unlikely]]
    wait_for_queue(message.peer, queue, !polls_memory());
  ++mine.slots_used[message.ring];
  copy_message(place.here, message.source, message.envelope.bytes);
  Envelope envelope = message.envelope;
  envelope.immediate |= place.immediate | Immediate::slot_and_message(0, (*message.sent)++);
  envelope.stamp = place.use + 1;
  std::byte* last = place.here + message.envelope.bytes;
  // The peer's slot still holds what this one does. A message as long as a packet then needs no
  // second packet for the envelope.
  const bool knows = !polls_memory() && std::memcmp(last, &envelope, kEnvelopeWithoutStamp) == 0;
  std::memcpy(last, &envelope, sizeof envelope);
  return {queue, index, envelope.immediate, knows};
}

/// A WRITE of what is in a slot.
Work VerbsWire::slot_write(const SlotMessage& message, const SlotPlace& place,
                           const TakenSlot& slot) const {
  const auto n = static_cast<Bytes>(message.envelope.bytes);
  Work write;
  write.here = place.here;
  write.key = control_.local_key();
  write.there = place.there;
  write.remote_key = message.state->block_key;
  write.bytes = n + (polls_memory() ? static_cast<Bytes>(sizeof(Envelope))
                     : slot.knows   ? 0
                                    : kEnvelopeWithoutStamp);
  write.payload = n;
  write.source_is_stable = true;
  if (!polls_memory()) write.immediate = slot.immediate;
  return write;
}

int VerbsWire::send_eagerly(const Channel& channel, Bytes source, Bytes destination, Bytes n) {
  const SlotMessage message = slot_message(channel, source, destination, n);
  const SlotPlace place = slot_place(message, next_use(message));
  const TakenSlot slot = take_slot(message, place);
  push(slot.queue, slot_write(message, place, slot));
  return slot.index;
}

/// What can be done before a message is there to be sent is done after the last one was.
class VerbsWire::SlotSend final : public PersistentSend {
 public:
  SlotSend(VerbsWire& wire, const SlotMessage& message, bool last)
      : wire_(wire), message_(message), last_(last) {
    part_.bytes = message.envelope.bytes;
    aim(wire_.next_use(message_));
  }
  [[gnu::hot]] std::span<const PostedPart> start() override {
    const std::uint32_t use = wire_.next_use(message_);
    if (use != place_.use) [[unlikely]]  // another message of this peer took the slot
      aim(use);
    const TakenSlot slot = wire_.take_slot(message_, place_);
    last_&& wire_.dirty_.empty() ? post(slot) : push(slot);
    part_.channel = static_cast<std::uint16_t>(slot.index);
    aim(use + 1);
    return {&part_, 1};
  }
  bool needs_flush() const override { return false; }  // what is sent from a slot stays there
  void touch() const override { weft::touch(this, sizeof *this); }

 private:
  void aim(std::uint32_t use) {
    place_ = wire_.slot_place(message_, use);
    for (PreparedWrite& write : writes_) {
      write.place.addr = reinterpret_cast<std::uint64_t>(place_.here);
      write.request.wr.rdma.remote_addr = place_.there;
    }
  }
  [[gnu::noinline]] void push(const TakenSlot& slot) {
    wire_.push(slot.queue, wire_.slot_write(message_, place_, slot));
    if (last_) wire_.post_all();
  }
  void post(const TakenSlot& slot) {
    PreparedWrite& write = writes_[slot.knows];
    if (write.request.sg_list == nullptr) [[unlikely]]
      prepare(write, slot);
    write.request.imm_data = htobe32(slot.immediate);
    if (const int error = slot.queue.post(write)) wire_.fail_post(error, slot.queue.index());
  }
  // Not before: a queue knows when it is connected how much its packets carry.
  [[gnu::noinline]] void prepare(PreparedWrite& write, const TakenSlot& slot) {
    write = slot.queue.prepare(wire_.slot_write(message_, place_, slot));
    write.request.sg_list = &write.place;
  }

  VerbsWire& wire_;
  SlotMessage message_;
  SlotPlace place_;  // where it goes next
  PostedPart part_;
  bool last_;
  std::array<PreparedWrite, 2> writes_{};  // with the envelope, and where the peer has it
};

std::unique_ptr<PersistentSend> VerbsWire::send_init(Channel channel, Bytes source,
                                                     Bytes destination, Bytes n, bool credited,
                                                     bool last) {
  if (credited || n == 0)
    return Transport::send_init(channel, source, destination, n, credited, last);
  return std::make_unique<SlotSend>(*this, slot_message(channel, source, destination, n), last);
}

void VerbsWire::wait_for_queue(Rank peer, VerbsQueue& queue, bool immediate) {
  await(
      peer,
      [&] {
        read_credits(peer);
        return is_ready(queue, immediate);
      },
      [&] { return immediate && queue.credits() <= 0 ? "free receives" : "acknowledgements"; });
}

void VerbsWire::wait_for_slot(Rank peer, SlotRing ring) {
  await(
      peer,
      [&] {
        read_credits(peer);
        return slot_is_free(state(peer), ring);
      },
      [] { return "a free slot"; });
}

void VerbsWire::note_borrower(std::uint32_t queue) {
  if (borrows_[queue]) return;
  borrows_[queue] = true;
  borrowers_.push_back(queue);
}

void VerbsWire::fail_post(int error, std::uint32_t queue) const {
  fail(ExitCode::failed, fmt::format("ibv_post_send failed ({}) on {}", std::strerror(error),
                                     peers_.describe(queue)));
}

void VerbsWire::post_dirty() {
  for (VerbsQueue* queue : dirty_) {
    if (const int error = queue->post()) fail_post(error, queue->index());
  }
  dirty_.clear();
}

[[gnu::hot]] void VerbsWire::flush() {
  post_all();
  if (!borrowers_.empty()) wait_for_borrowers();
}

void VerbsWire::wait_for_borrowers() {
  for (const std::uint32_t number : borrowers_) {
    const VerbsQueue& queue = peers_.queue(number);
    await(
        peers_.peer_of(number), [&] { return queue.is_idle(); }, [] { return "acknowledgements"; });
    borrows_[number] = false;
  }
  borrowers_.clear();
}

}  // namespace weft
