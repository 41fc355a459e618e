// Transport: what a new one-sided wire implements; it inherits every collective from the schedules
// (scheduled_communicator). Setup is collective; the datapath is put, fetch, signal, wait.
//
// Ordering promise: data of puts to a peer issued before signal() on the same channel are visible
// to the peer when its wait() has seen that signal. Nothing else is ordered.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "transports/communicator.hpp"
#include "transports/native.hpp"
#include "transports/queue_pair_facts.hpp"

namespace weft {

/// Tells communicators and purposes (data, credits) apart. `peer` is a global rank.
struct Channel {
  CommId comm = 0;
  std::uint16_t id = 0;
  Rank peer = 0;
};
inline constexpr std::uint16_t kDataChannel = 0;
inline constexpr std::uint16_t kCreditChannel = 1;
inline constexpr std::uint16_t kChannelsPerComm = 2;

/// That this rank's counter of a channel reaches a number.
struct Expected {
  Channel channel;
  std::uint64_t at_least = 0;
};

/// A part of a message as it was posted.
struct PostedPart {
  std::uint16_t channel = 0;  // verbs: index of the queue pair
  Bytes bytes = 0;
};

/// A message that is sent again and again, always from and to the same places: whatever a wire can
/// look up is looked up beforehand.
class PersistentSend {
 public:
  virtual ~PersistentSend() = default;
  /// As Transport::send().
  virtual std::span<const PostedPart> start() = 0;
  /// False: once it and those that follow it have been started, flush() has nothing to do for them.
  virtual bool needs_flush() const { return true; }
  /// As Communicator::touch().
  virtual void touch() const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// Copies n bytes from this rank's arena at `source` to the peer's arena at `destination`.
  /// Records nothing; the caller does.
  virtual void put(Channel channel, Bytes source, Bytes destination, Bytes n) = 0;
  /// Adds one to the peer's counter of this channel (comm, id, this rank).
  virtual void signal(Channel channel) = 0;
  /// put() and signal(), as one message where the wire can. Without a credit (at most
  /// uncredited_bytes()) the message waits at the peer until it is waited for there, and its source
  /// may be overwritten at once. Returns what was posted, valid until the next call; nothing for no
  /// bytes.
  virtual std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination,
                                           Bytes n, bool credited);
  /// Makes such a message, before the commit() that it belongs to. `last`: nothing is sent right
  /// after it, so all that was sent is posted with it.
  virtual std::unique_ptr<PersistentSend> send_init(Channel channel, Bytes source,
                                                    Bytes destination, Bytes n, bool credited,
                                                    bool last);
  /// All that was put, signalled, sent or asked for so far is under way, for a caller that now
  /// works instead of waiting. wait() and flush() see to it by themselves.
  virtual void post() {}
  /// Returns when this rank's counter of (comm, id, peer) has reached `at_least` (counts never go
  /// back). Throws Error(timed_out) naming peer, host and `what`.
  virtual void wait(Channel channel, std::uint64_t at_least, const char* what) = 0;
  /// Returns when one of them has come: its index, the first if several have. Throws like wait(),
  /// naming the first of all.
  virtual std::size_t wait_any(std::span<const Expected> any, const char* what) = 0;
  /// The other way round: copies n bytes of the peer's arena at `source` to this rank's at
  /// `destination`. A signal must have told that they are there; they are here after flush().
  /// Returns what was asked for, like send().
  virtual std::span<const PostedPart> fetch(Channel channel, Bytes source, Bytes destination,
                                            Bytes n) = 0;
  /// This rank's puts are complete and their sources may be overwritten; what it fetched is here.
  virtual void flush() = 0;
  /// Ids 0 .. max_comms()-1 exist. Communicators that share a rank have different ids; others may
  /// have the same.
  virtual CommId max_comms() const = 0;

  /// Messages up to this size may be sent without a ready credit: they reach their place only when
  /// the receiver waits for them.
  virtual Bytes uncredited_bytes() const { return 0; }
  /// Collective, at the end of each commit of the session: from here on the first `used` bytes of
  /// the arena are put from and to, and `peers` (global ranks, ascending, without this one) are all
  /// that it shares a communicator with; they are as many as before or more.
  virtual void commit(Bytes, std::span<const Rank>) {}
  /// The wire's queue pairs with what was sent on them; wires without have none.
  virtual std::vector<QueuePairFacts> queue_pairs() const { return {}; }

  /// The schedule that this wire runs such a collective with where the user names none; empty: it
  /// has no opinion. A function of its arguments and constants only: all members ask.
  virtual std::string_view preferred_algorithm(const ScheduleInput&, DType) const { return {}; }
  /// Whether this wire has a form of its own for such operations; then native() makes it.
  virtual bool offers_native(OperationKind) const { return false; }
  /// Called in commit(), on all members alike. Throws Error(usage) on what the wire refuses.
  virtual std::unique_ptr<NativeOperation> native(const NativeInput&) { return nullptr; }

 protected:
  /// A message that was posted in one part; nothing for no bytes. Valid until the next call.
  std::span<const PostedPart> in_one_part(Bytes n) {
    whole_ = {0, n};
    return {&whole_, n > 0 ? std::size_t{1} : 0};
  }

 private:
  PostedPart whole_;
};

/// A Session whose communicators run schedules on `transport`, or its native forms: those are the
/// default, and algorithm 'native' insists on them. `arena` is already shared with the
/// peers by the transport. Each commit() takes from the arena: scratch for the neediest of its
/// operations (they run one at a time), and run_time_control_bytes(group size) for each
/// communicator with run-time counts.
std::unique_ptr<Session> make_scheduled_session(Bootstrap& bootstrap, Arena& arena,
                                                std::unique_ptr<Transport> transport,
                                                const SessionOptions& options);

/// Arena bytes that run-time counts need for one communicator: receivers publish there where a
/// sender shall put.
constexpr Bytes run_time_control_bytes(int group_size) { return Bytes{128} * group_size; }

/// The load/store wire inside a host. Maps every rank's arena; throws Error(usage) where the system
/// refuses.
std::unique_ptr<Transport> make_shm_transport(Bootstrap& bootstrap, Arena& arena,
                                              const SessionOptions& options);
std::string shm_unavailable(Bootstrap& bootstrap);
/// The machine's limit: the moves of shm without its flags, for sweeps of one collective. Right
/// only where inputs stay as they are from the first iteration on; recorded iterations (the
/// verification) keep the flags.
std::unique_ptr<Session> make_bare_session(Bootstrap& bootstrap, Arena& arena,
                                           const SessionOptions& options);

/// Raw RDMA on reliable connections. Throws Error(usage) where a device or the system refuses.
std::unique_ptr<Transport> make_verbs_transport(Bootstrap& bootstrap, Arena& arena,
                                                const SessionOptions& options);
std::string verbs_unavailable(Bootstrap& bootstrap);

/// MPI's own collectives: the baseline.
std::string mpi_unavailable(Bootstrap& bootstrap);
std::unique_ptr<Session> make_mpi_session(Bootstrap& bootstrap, Arena& arena,
                                          const SessionOptions& options);

}  // namespace weft
