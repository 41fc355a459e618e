// Which communication steps of several ranks belong together, and whether those that do agree.
// Internal to patterns/.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "patterns/program.hpp"

namespace weft {

/// A step that a rank stands in: an index into its flat list.
struct Posted {
  Rank rank = 0;
  int step = -1;
};

/// What a step waits for, and for whom.
struct Blocked {
  Posted who;
  std::string what;  // "all_reduce over tp {0, 1}"
  std::vector<Rank> awaited;
};

/// The operations that ranks have entered and that are not yet matched. Collectives of a
/// communicator are matched in the order in which each rank enters them, messages first in, first
/// out for each (communicator, from, to).
class WorldMatch {
 public:
  /// `where` names a step for messages: "rank 1 in step 3 'send a'".
  WorldMatch(const std::vector<Program>& programs, std::function<std::string(Posted)> where)
      : programs_(programs), where_(std::move(where)) {}

  /// Enters a collective. Returns the steps of all members if this was the last of them, else
  /// nothing. `op` must outlive the match. Throws Error(usage) if members disagree.
  std::vector<Posted> enter(Posted who, const Collective& op);
  /// Posts one message. Returns both sides if they have met, else nothing. Throws Error(usage) if
  /// they disagree.
  std::vector<Posted> post(Posted who, const SendRecv& op);
  /// Everything entered and not matched, by rank.
  std::vector<Blocked> blocked() const;

 private:
  struct Entered {
    Posted who;
    const Collective* op;
    int index;  // of the rank in the group
  };
  struct Comm {
    Group group;
    std::vector<Entered> entered;
  };
  struct Message {
    Posted who;
    Index elements;
    DType dtype;
  };
  struct Channel {
    std::deque<Message> sends, recvs;
  };
  using CommKey = std::tuple<Dimension, Rank, std::vector<int>>;
  using ChannelKey = std::tuple<std::size_t, Rank, Rank>;  // communicator, from, to

  std::size_t comm_of(Posted who, GroupId id);
  int index_in(const Comm& comm, Posted who) const;
  void check_alike(const Comm& comm, const Entered& a, const Entered& b) const;
  void check_own_part(const Comm& comm, const Entered& entered) const;
  void check_exchange(const Comm& comm) const;
  void check_message(const Comm& comm, const Message& send, const Message& recv) const;
  [[noreturn]] void disagree(const Comm& comm, Posted a, Posted b, const std::string& what) const;
  DType dtype_of(Rank rank, const View& view) const;
  Blocked describe(const Comm& comm, const Entered& entered) const;

  const std::vector<Program>& programs_;
  std::function<std::string(Posted)> where_;
  std::map<CommKey, std::size_t> ids_;
  std::vector<Comm> comms_;
  std::map<ChannelKey, Channel> channels_;
};

}  // namespace weft
