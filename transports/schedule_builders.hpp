// What the algorithms share: block arithmetic, a builder that drops empty transfers the same way on
// both sides, a lazy Schedule, and the host map. Private to the schedule_*.cpp files and their
// tests.
//
// An algorithm is a Family: one Entry per operation. schedule.cpp checks the input and handles
// groups of one member, so an entry sees a valid input of at least two members.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "transports/schedule.hpp"

namespace weft {

/// An algorithm's part for one operation: the schedule and its closed form.
struct Entry {
  std::unique_ptr<Schedule> (*make)(const ScheduleInput&, int rank) = nullptr;
  TrafficTotals (*traffic)(const ScheduleInput&, int rank) = nullptr;
};

struct Family {
  std::string_view name, summary;
  Entry all_gather, all_reduce, reduce_scatter, broadcast, all_to_all_v;
  std::string_view unsuitable;  // why an entry is absent; only read if one is
  bool fetched = false;         // Algorithm's
};

// In functions, so that no table is read before it is made.
const Family& ring_family();
const Family& pipelined_family();
const Family& direct_family();
const Family& one_shot_family();
const Family& pull_family();
const Family& recursive_family();
const Family& recursive_doubling_family();
const Family& hierarchical_family();

inline Place in_at(Index offset) { return {BufferRole::in, offset}; }
inline Place out_at(Index offset) { return {BufferRole::out, offset}; }
inline Place scratch_at(Index offset) { return {BufferRole::scratch, offset}; }

/// i modulo n, for i down to -2n.
inline int wrap(int i, int n) { return (i + 2 * n) % n; }

/// A buffer cut into consecutive blocks.
class Blocks {
 public:
  explicit Blocks(const std::vector<Index>& counts);
  /// As part_of() cuts; takes no memory per block.
  static Blocks even(Index total, int parts);

  int size() const { return parts_; }
  Index total() const { return total_; }
  Index offset(int i) const;  // 0 <= i <= size()
  Index count(int i) const { return offset(i + 1) - offset(i); }
  Index span(int first, int end) const { return offset(end) - offset(first); }
  std::int64_t nonzero() const;  // how many blocks have elements

 private:
  Blocks(Index total, int parts) : total_(total), parts_(parts) {}
  Index total_ = 0;
  int parts_ = 0;
  std::vector<Index> offsets_;  // empty: even
};

/// Into how many messages a block is cut so that sums are made while the rest arrives: pieces of
/// 8192 elements, at most 64, in a group of n at most 1024/n.
int in_pieces(Index block, int n);
inline int in_one(Index, int) { return 1; }

/// Fills a Round. Empty transfers and steps are left out; receives of one peer in a row become one
/// entry.
class RoundBuilder {
 public:
  /// Of what a send of this round reads.
  void copy_before(Place from, Place to, Index elements);
  void send(int peer, Place from, Place to, Index elements);
  /// Of anything else: nobody waits for it.
  void copy_meanwhile(Place from, Place to, Index elements);
  void receive(int peer, Index elements);
  void copy_after(Place from, Place to, Index elements);
  void reduce_after(Place from, Place to, Index elements);
  Round take() { return std::move(round_); }

 private:
  Round round_;
};

/// A Schedule whose rounds are made by a function.
class LazySchedule final : public Schedule {
 public:
  using Fill = std::function<void(int r, RoundBuilder&)>;
  LazySchedule(int rounds, Index scratch, Fill fill)
      : rounds_(rounds), scratch_(scratch), fill_(std::move(fill)) {}
  int rounds() const override { return rounds_; }
  Round round(int r) const override;
  Index scratch_elements() const override { return scratch_; }

 private:
  int rounds_;
  Index scratch_;
  Fill fill_;
};

inline std::unique_ptr<Schedule> make_lazy(int rounds, Index scratch, LazySchedule::Fill fill) {
  return std::make_unique<LazySchedule>(rounds, scratch, std::move(fill));
}

/// Offsets of an all_to_all_v: where `from`'s block for `to` lies in from's in and in to's out.
Index send_offset(const ScheduleInput& input, int from, int to);
Index recv_offset(const ScheduleInput& input, int from, int to);
inline Index cell(const ScheduleInput& input, int from, int to) {
  return input.matrix[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

inline Index count_of(const ScheduleInput& input, int i) {
  return input.counts[static_cast<std::size_t>(i)];
}
/// Without a host map all members are on one host.
inline bool same_host(const ScheduleInput& input, int a, int b) {
  return input.hosts.empty() ||
         input.hosts[static_cast<std::size_t>(a)] == input.hosts[static_cast<std::size_t>(b)];
}
/// How many members are on other hosts than `rank`.
int members_elsewhere(const ScheduleInput& input, int rank);

/// What `rank` sends and receives when every pair exchanges its block straight: the traffic of any
/// all_to_all_v that forwards nothing.
TrafficTotals straight_all_to_all(const ScheduleInput& input, int rank);

TrafficTotals operator+(TrafficTotals a, const TrafficTotals& b);

}  // namespace weft
