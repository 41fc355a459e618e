// Brings the records of all ranks together: which communicators there are, which operations of
// their members belong together, and whether the members agree. A pure function of the records, so
// that every rank comes to the same verdict.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "transports/schedule.hpp"
#include "transports/scheduled_records.hpp"
#include "transports/transport.hpp"

namespace weft {

struct CommKey {
  Dimension dim = Dimension::none;
  std::vector<Rank> ranks;
  auto operator<=>(const CommKey&) const = default;
};
std::string to_string(const CommKey& key);

/// One collective of a group: record of each member, by group index.
using Matched = std::vector<const OperationRecord*>;

class GroupMatch {
 public:
  explicit GroupMatch(CommKey key);
  /// Adds a member's record (one that stays alive).
  void add(Rank rank, const CommRecord& record);
  /// Throws Error(usage) naming the operation, the two members and what they disagree on.
  void check() const;

  const CommKey& key() const { return key_; }
  std::size_t collectives() const { return collectives_.front().size(); }
  Matched collective(std::size_t k) const;
  /// Messages from a to b (group indices): as their sender and as their receiver lists them.
  std::vector<PointRecord> sends(int from, int to) const;
  std::vector<PointRecord> receives(int to, int from) const;
  /// How each of these messages gets leave to be sent. Messages that both ends post together in one
  /// operation each are a run: one credit opens all of it; a short run of messages of at most
  /// `uncredited` bytes needs none.
  struct Leave {
    bool opens = true;     // a credit is given and taken before this message
    bool credited = true;  // the receiver is known to be ready
  };
  std::vector<Leave> leaves(int from, int to, Bytes uncredited) const;
  Bytes control(int member) const { return control_[static_cast<std::size_t>(member)]; }

 private:
  void check_collective(std::size_t k) const;
  void check_pair(int from, int to) const;
  struct Point {
    PointRecord record;
    std::size_t operation = 0;  // of the member's own point-to-point operations
  };
  std::vector<Point> points(int member, bool send, int peer) const;

  CommKey key_;
  std::vector<std::vector<const OperationRecord*>> collectives_;  // [member][k]
  std::vector<std::vector<const OperationRecord*>> points_;       // [member]
  std::vector<Bytes> control_;
};

/// All groups of at least one rank's record, in the order of their keys.
std::map<CommKey, GroupMatch> match_groups(const std::vector<RankRecord>& records);

/// Sizes of a matched collective as its schedule wants them; `hosts` are host indices of the
/// members.
ScheduleInput schedule_input(const Matched& matched, std::vector<int> hosts);

/// Gives ids to the groups that have none: the smallest that no group sharing a rank has. Groups of
/// one rank never send and get 0. Throws Error(usage) when more than `limit` are needed.
void assign_ids(const std::map<CommKey, GroupMatch>& groups, CommId limit,
                std::map<CommKey, CommId>& ids);

}  // namespace weft
