// What the two-level schedules share: who is on which host, and who stands in for whom.
//
// The deputy of member q on another host is the member there whose local index is q's, modulo that
// host's size. Data for or from q crosses between hosts only between q and its deputies, so each
// byte crosses once per pair of hosts that must have it; the rest stays inside hosts. Hosts of
// equal size exchange in parallel, member by member ("rails"); hosts of unequal size share the work
// as evenly as the modulus does. Private to schedule_hierarchical*.cpp.
#pragma once

#include <vector>

#include "transports/schedule_builders.hpp"

namespace weft {

class HostMap {
 public:
  explicit HostMap(const ScheduleInput& input);

  int hosts() const { return static_cast<int>(members_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  int local_of(int rank) const { return local_of_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& members(int host) const {  // ascending
    return members_[static_cast<std::size_t>(host)];
  }
  const std::vector<int>& neighbours(int rank) const { return members(host_of(rank)); }
  int host_size(int rank) const { return static_cast<int>(neighbours(rank).size()); }
  int deputy(int rank, int host) const;  // itself on its own host
  /// True where `member` is q or q's deputy.
  bool serves(int member, int q) const { return deputy(q, host_of(member)) == member; }
  /// The i-th other member of rank's host, starting after rank; 1 <= i < host_size(rank).
  int neighbour(int rank, int i) const;

 private:
  std::vector<int> host_of_, local_of_;
  std::vector<std::vector<int>> members_;
};

Entry hierarchical_broadcast();
Entry hierarchical_all_to_all_v();

}  // namespace weft
