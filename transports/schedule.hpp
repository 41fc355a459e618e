// Collective algorithms as data: a pure function (op, sizes, host map, rank) -> Schedule, run by
// scheduled_communicator on any wire. A one-sided wire cannot reduce remotely, so a reduction is a
// local step of the receiver.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "patterns/types.hpp"
#include "transports/communicator.hpp"

namespace weft {

enum class BufferRole : std::uint8_t { in, out, scratch };

struct Place {
  BufferRole role = BufferRole::in;
  Index offset = 0;  // elements
  bool operator==(const Place&) const = default;
};

/// Elements from this rank's `from` to the peer's `to`. The peer is a group index.
struct Transfer {
  int peer = 0;
  Place from, to;
  Index elements = 0;
};

struct LocalStep {
  enum class Kind : std::uint8_t { copy, reduce } kind = Kind::copy;  // reduce: to = to + from
  Place from, to;
  Index elements = 0;
};

/// One round: `before` (local steps), then all sends are posted, then `meanwhile` (local steps,
/// while data are on their way), then `receives[i]` messages are awaited from peers[i], then
/// `after`. A transfer of zero elements is never listed. A message is
/// received in the round it was sent in or in a later one, and may be read from `after` of that
/// round on. All members have equally many rounds; no rank waits for a round of ranks that it does
/// not receive from.
struct Round {
  std::vector<LocalStep> before{};
  std::vector<Transfer> sends{};
  std::vector<LocalStep> meanwhile{};
  struct Receive {
    int peer = 0;
    int messages = 0;
    Index elements = 0;  // of these messages together
  };
  std::vector<Receive> receives{};
  std::vector<LocalStep> after{};
};

/// Sizes of one collective of one group, in elements.
struct ScheduleInput {
  OperationKind kind = OperationKind::all_reduce;
  int size = 1;  // members
  /// all_gather, reduce_scatter: per member; all_reduce, broadcast: one entry.
  std::vector<Index> counts{};
  std::vector<std::vector<Index>> matrix{};  // all_to_all_v: [from][to]
  int root = 0;
  /// Host index of each member (virtual hosts included), any numbers; empty: all on one host.
  std::vector<int> hosts{};
};

/// Rounds are made one at a time, so nothing holds a large group's whole expansion.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual int rounds() const = 0;
  virtual Round round(int r) const = 0;
  virtual Index scratch_elements() const = 0;  // this rank's
};

/// Closed form: what `rank` (group index) sends and receives, per peer class.
struct TrafficTotals {
  Index sent = 0, received = 0;    // elements
  std::int64_t messages_sent = 0;  // messages of more than zero elements
  Index sent_to_other_hosts = 0;
  bool operator==(const TrafficTotals&) const = default;
};

struct Algorithm {
  /// ring, pipelined, direct, one-shot, pull, recursive, recursive-doubling, hierarchical.
  std::string_view name;
  std::string_view summary;
  /// Empty if it can do this; else why not in one line ("recursive halving needs ..."). All
  /// sizes 1.. and uneven counts work in ring, direct and hierarchical; recursive handles group
  /// sizes that are no power of two by folding.
  std::string (*unsuitable)(const ScheduleInput&);
  std::unique_ptr<Schedule> (*make)(const ScheduleInput&, int rank);
  /// Formula beside each definition; a test holds it equal to the expansion.
  TrafficTotals (*traffic)(const ScheduleInput&, int rank);
  /// A sender only says that its data are ready; the receiver fetches them and says that it did.
  bool fetched = false;
};

const std::vector<Algorithm>& algorithms();
/// Throws Error(usage) that lists the known names.
const Algorithm& find_algorithm(std::string_view name);

/// The expansion's totals, for tests and for predicted flows.
TrafficTotals expand_traffic(const Schedule& schedule, const ScheduleInput& input, int rank);

}  // namespace weft
