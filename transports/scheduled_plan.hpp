// A schedule of one rank, expanded and bound to memory: a flat list that run() walks. Made in
// commit().
//
// Ready credits: a rank that enters an operation first gives one credit to every peer that will put
// into it; a peer takes that credit before its first put. So nobody writes into memory that its
// owner still uses. Where receivers fetch, the same signals go the other way: a sender tells on the
// data channel that a round's data are ready, and a receiver that has fetched them tells on the
// credit channel, before the sender goes on to its next round.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/buffer.hpp"
#include "transports/schedule.hpp"
#include "transports/scheduled_match.hpp"

namespace weft {

struct PlanStep {
  enum class Kind : std::uint8_t {
    give_credit,  // to peer
    take_credit,  // from peer
    as_ready,     // the next n steps: a take_credit and what is put then, again and again; the
                  // peers whose credit comes first are the first
    put,          // a -> b of the peer, n bytes; then signal; its place is known to be free
    send,         // likewise, but it may have to wait at the peer until it is awaited
    post,         // all that was sent is under way: local steps follow
    await,        // n messages from peer
    offer,        // to peer: what it fetches in this round is ready
    fetch,        // a of the peer -> b, n bytes; here after the next flush
    flush,        // what was fetched is here
    copy,         // to = n bytes at sources[a]
    reduce,       // to = sum of sources[a .. a+b), n elements
  } kind = Kind::put;
  int peer = 0;   // group index
  int round = 0;  // of the schedule: for messages
  Bytes a = 0, b = 0, n = 0;
  std::byte* to = nullptr;
  PersistentSend* message = nullptr;  // put, send: as the wire prepared it
};

struct OperationPlan {
  std::vector<PlanStep> steps;
  std::vector<const std::byte*> sources;
  std::vector<std::unique_ptr<PersistentSend>> sends;  // of the steps
  DType dtype = DType::f32;
  std::string what;  // "all_gather 'gather Y' of the tp group {0,1}"
  int rounds = 0;
  bool run_time = false;                    // the steps follow from run-time counts
  bool flush = true;                        // at its end
  std::unique_ptr<NativeOperation> native;  // the wire's own form, in place of steps
};

/// Where a member's memory lies in its arena.
struct Places {
  Bytes in = 0, out = 0, scratch = 0;
};

/// What binds a schedule to memory.
struct PlanSetting {
  const std::vector<Places>& places;  // by group index
  int rank = 0;                       // group index of this one
  DType dtype = DType::f32;
  Arena& arena;
  bool credits = true;  // false: all messages are short enough to do without
  /// Set: receivers fetch. Makes the schedule of a member, which tells where its data are.
  std::function<std::unique_ptr<Schedule>(int member)> fetched_from{};
};
/// Throws Error(failed) if the schedule leaves its memory.
OperationPlan make_plan(const Schedule& schedule, const PlanSetting& setting);

/// A message of a point-to-point operation: `local` here; `remote` at the peer (sends only).
struct PointPlace {
  bool send = true;
  int peer = 0;
  Bytes local = 0, remote = 0, bytes = 0;
  GroupMatch::Leave leave{};
};
/// All credits are given before anything is sent, and everything is sent before anything is
/// awaited, or all in order.
OperationPlan make_point_plan(const std::vector<PointPlace>& members, bool in_order);

}  // namespace weft
