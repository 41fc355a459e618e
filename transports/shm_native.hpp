// The native forms of the shm wire. Private to shm*.cpp and their tests.
//
// A collective inside one host needs no schedule: every rank sees every buffer. The direct form is
// one rendezvous, the move (each rank pulls what it needs, or sums its share of all inputs into
// all outputs), and a second rendezvous, after which inputs may be overwritten. Small operations
// take one: what a rank gives lies beside its flag, in a slot that is not reused before everyone
// has read it (see Board). Who waits for whom is the same in all forms: everyone for everyone.
#pragma once

#include <bit>
#include <map>
#include <memory>

#include "transports/shm_flags.hpp"
#include "transports/shm_peers.hpp"
#include "transports/shm_wire.hpp"
#include "transports/wait_policy.hpp"

namespace weft {

/// Throws Error(timed_out): `missing` is what was waited for, `what` the operation.
[[noreturn]] void fail_missing(const ShmPeers& peers, const WaitPolicy& policy, Rank peer,
                               const char* missing, const char* what);

/// How much memory the prepared operations of this rank touch, each byte counted once.
class Footprint {
 public:
  void add(Bytes place, Bytes bytes);
  Bytes total() const { return total_; }

 private:
  std::map<Bytes, Bytes> pieces_;  // begin -> end, apart from each other
  Bytes total_ = 0;
};

/// What all native operations of a rank share.
struct ShmContext {
  const ShmPeers& peers;
  Bytes boards = 0;  // where they begin in a rank's flags
  const WaitPolicy& policy;
  ShmSettings settings;
  Bytes cache = 0;  // last level
  Footprint footprint;

  /// Whether a piece of n bytes is written past the caches, when buffers of `caches` last-level
  /// caches are too large for them.
  bool streams(Bytes n, double caches) const {
    if (settings.streaming) return *settings.streaming;
    if (n < settings.thresholds.streaming_piece) return false;
    return static_cast<double>(footprint.total() * peers.size()) >
           caches * static_cast<double>(cache);
  }
};

/// The flags of one communicator. Its operations are numbered; all members count alike.
class ShmGroup {
 public:
  ShmGroup(const ShmContext& context, const NativeInput& input);

  std::uint64_t enter() { return ++sequence_; }
  Board& own() const { return *own_; }
  const Board& board(int member) const { return *boards_[static_cast<std::size_t>(member)]; }

  /// Calls fn(member) for every other member as soon as its flag(board) has reached k, those at
  /// hand first.
  template <class FlagOf, class Fn>
  void each(std::uint64_t k, FlagOf flag, Fn fn, const char* missing, const char* what) const {
    std::uint64_t pending = others_;
    Patience patience(context_.policy);
    while (true) {
      const std::uint64_t before = pending;
      for (std::uint64_t left = pending; left != 0; left &= left - 1) {
        const int i = std::countr_zero(left);
        const Peer& peer = order_[static_cast<std::size_t>(i)];
        if (!flag(*peer.board).reached(k)) continue;
        pending &= ~(std::uint64_t{1} << i);
        fn(peer.member);
      }
      if (pending == 0) return;
      if (pending != before) continue;
      if (!patience.pause()) fail_first(pending, missing, what);
    }
  }

 private:
  struct Peer {
    const Board* board = nullptr;
    int member = 0;
  };
  [[noreturn]] void fail_first(std::uint64_t pending, const char* missing, const char* what) const;

  const ShmContext& context_;
  Board* own_;
  std::vector<Rank> ranks_;           // by group index
  std::vector<const Board*> boards_;  // by group index
  std::vector<Peer> order_;           // the others, from the member behind this one on
  std::uint64_t others_;              // bit i: order_[i]
  std::uint64_t sequence_ = 0;
};

class ShmNative {
 public:
  /// `boards`: where they begin in a rank's flags.
  ShmNative(const ShmPeers& peers, Bytes boards, const WaitPolicy& policy,
            const ShmSettings& settings);

  bool offers(OperationKind kind) const;
  std::unique_ptr<NativeOperation> make(const NativeInput& input);

 private:
  void check_bare(const NativeInput& input);

  ShmContext context_;
  std::map<CommId, std::unique_ptr<ShmGroup>> groups_;
  std::unique_ptr<ScheduleInput> only_;  // bare: the one collective of the session
};

// The forms, each in a file of its own. A group of one has no ShmGroup.
std::unique_ptr<NativeOperation> make_shm_pull(const ShmContext& context, ShmGroup* group,
                                               const NativeInput& input);
std::unique_ptr<NativeOperation> make_shm_run_time_pull(const ShmContext& context, ShmGroup* group,
                                                        const NativeInput& input);
std::unique_ptr<NativeOperation> make_shm_sum(const ShmContext& context, ShmGroup* group,
                                              const NativeInput& input);

}  // namespace weft
