// One reliable connection: its send queue with what is under way, and its receive queue.
// Work requests are collected and posted in lists; one completion answers for all before it.
// Private to verbs*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transports/queue_pair_facts.hpp"
#include "transports/verbs_device.hpp"
#include "transports/verbs_objects.hpp"

namespace weft {

/// Depths of each queue pair, the same on all ranks.
struct QueueDepths {
  int send = 128, receive = 128;
  int inlined = 0;  // bytes that a work request may carry by itself
};

/// What the other end must know of a queue pair.
struct QueueAddress {
  std::uint32_t number = 0;
  std::uint32_t first_packet = 0;  // packet sequence number
};

/// The way to a peer's port.
struct VerbsPath {
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

/// A completion's wr_id: which queue, and for sends how many work requests it answers for.
struct WorkId {
  bool send = false;
  std::uint32_t queue = 0;  // index among all queues of the session
  std::uint32_t count = 0;
  static constexpr std::uint64_t kSend = std::uint64_t{1} << 63;
  std::uint64_t pack() const {
    return (send ? kSend : 0) | std::uint64_t{queue} << 32 | std::uint64_t{count};
  }
  static WorkId unpack(std::uint64_t id) {
    return {(id & kSend) != 0, static_cast<std::uint32_t>(id >> 32 & 0x7FFFFFFF),
            static_cast<std::uint32_t>(id)};
  }
};

/// A WRITE of `bytes` from registered memory here to registered memory there, or a READ of what is
/// there to here.
struct Work {
  bool reads = false;
  const std::byte* here = nullptr;
  std::uint32_t key = 0;
  std::uint64_t there = 0;
  std::uint32_t remote_key = 0;
  Bytes bytes = 0;
  std::optional<std::uint32_t> immediate{};  // of a WRITE
  Bytes payload = 0;                         // how many of the bytes are the pattern's own
  bool source_is_stable = false;             // nobody will ask when it has been carried out
};

/// A WRITE that is posted again and again, by any queue to one peer: filled in but for the places
/// and the immediate, with what it adds to the queue's traffic.
struct PreparedWrite {
  ibv_send_wr request{};
  ibv_sge place{};
  QueuePairTraffic traffic{};
};

class VerbsQueue {
 public:
  // The work requests point at each other: it stays where it is.
  VerbsQueue(const VerbsQueue&) = delete;
  VerbsQueue& operator=(const VerbsQueue&) = delete;
  /// A queue pair in state INIT, its receive queue filled. `index`: of the completions' ids.
  VerbsQueue(const VerbsDevice& device, ibv_cq* completions, const QueueDepths& depths,
             std::uint32_t index);

  QueueAddress address() const { return own_; }
  const QueueAddress& peer() const { return peer_; }
  /// To RTS. Throws Error(usage) with the state that was refused.
  void connect(const VerbsDevice& device, const VerbsOptions& options, const QueueAddress& peer,
               const VerbsPath& path, int ordinal);

  /// Work requests that may still be queued.
  int room() const { return depths_.send - static_cast<int>(queued_ - completed_); }
  /// Its place among all queues of the session.
  std::uint32_t index() const { return index_; }
  /// Immediates that the peer has room for.
  int credits() const { return credits_; }
  void add_credits(int count) { credits_ += count; }
  /// Needs room, a credit for an immediate, and a list that is not full. True if memory here may
  /// not be used before is_idle().
  bool queue(const Work& work);
  bool list_is_full() const { return length_ == kList; }
  /// Posts what is queued. 0, or an errno.
  int post();
  bool anything_queued() const { return length_ > 0; }
  /// Of a WRITE from stable memory.
  PreparedWrite prepare(const Work& work) const;
  /// Posts it by itself; as queue() and post(), with nothing queued.
  int post(PreparedWrite& write);
  void completed(std::uint32_t count) { completed_ = count; }
  /// All sources of what was posted may be overwritten, and what was read is here.
  bool is_idle() const { return static_cast<std::int32_t>(completed_ - last_borrowed_) >= 0; }

  /// A receive was used up. True when so many are that they should be given back now.
  bool consume() { return ++consumed_ >= depths_.receive / 2; }
  /// Posts the used receives again; returns how many were given back since the connection began.
  /// Negative: minus errno.
  std::int64_t refill();

  ibv_qp* get() const { return queue_pair_.get(); }
  int udp_source_port() const { return udp_source_port_; }
  const QueuePairTraffic& sent() const { return sent_; }
  /// What the peer's end sends in answer to READs.
  const QueuePairTraffic& read() const { return read_; }

 private:
  static constexpr int kList = 16;
  int post_receives(int count);
  void fill(ibv_send_wr& request, ibv_sge& place, const Work& work) const;
  bool goes_inline(const Work& work) const { return !work.reads && work.bytes <= depths_.inlined; }
  /// Adds to the traffic of the end that carries the data, and of the end that asks.
  void count(const Work& work, QueuePairTraffic& sent, QueuePairTraffic& read) const;
  bool due_completion(int requests);
  std::uint64_t unsignalled_id() const { return WorkId{true, index_, completed_}.pack(); }
  std::uint64_t signalled_id() const { return WorkId{true, index_, queued_}.pack(); }
  void to_ready_to_receive(const VerbsDevice& device, const VerbsOptions& options,
                           const VerbsPath& path);
  void to_ready_to_send(const VerbsDevice& device, const VerbsOptions& options);

  VerbsQueuePair queue_pair_;
  QueueDepths depths_;
  std::uint32_t index_;
  QueueAddress own_, peer_;
  Bytes path_mtu_ = 1024;
  int udp_source_port_ = 0;
  int credits_ = 0;
  int length_ = 0;  // of the list
  std::array<ibv_send_wr, kList> list_{};
  std::array<ibv_sge, kList> places_{};
  bool list_borrows_ = false;
  // Counts of work requests; they wrap.
  std::uint32_t queued_ = 0, completed_ = 0, last_borrowed_ = 0, unsignalled_ = 0;
  int consumed_ = 0;
  std::int64_t given_back_ = 0;
  QueuePairTraffic sent_, read_;
  Bytes frame_overhead_ = 0;  // of each packet; 0: no Ethernet
};

// Here, since a message of a few bytes takes no longer than the instructions that post it.
inline int VerbsQueue::post(PreparedWrite& write) {
  ibv_send_wr& request = write.request;
  ++queued_;
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) --credits_;
  ibv_send_wr* refused = nullptr;
  if (due_completion(1)) [[unlikely]] {
    request.wr_id = signalled_id();
    request.send_flags |= IBV_SEND_SIGNALED;
    const int error = ibv_post_send(queue_pair_.get(), &request, &refused);
    request.send_flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
    sent_ += write.traffic;
    return error;
  }
  request.wr_id = unsignalled_id();
  const int error = ibv_post_send(queue_pair_.get(), &request, &refused);
  sent_ += write.traffic;  // when the message is on its way
  return error;
}

/// Completions are asked for now and then: one answers for all requests before it.
inline bool VerbsQueue::due_completion(int requests) {
  unsignalled_ += static_cast<std::uint32_t>(requests);
  if (unsignalled_ < static_cast<std::uint32_t>(depths_.send) / 4) return false;
  unsignalled_ = 0;
  return true;
}

/// "128" of IBV_MTU_... and back; 0 for what is none.
Bytes bytes_of(ibv_mtu mtu);
ibv_mtu mtu_of(Bytes bytes);

}  // namespace weft
