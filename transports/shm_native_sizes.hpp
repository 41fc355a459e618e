// Forms and traffic of shm's native operations as pure functions of their sizes: what the
// operations do and what is predicted of them come from the same lines.
#pragma once

#include "transports/schedule.hpp"
#include "transports/shm_wire.hpp"

namespace weft {

enum class ShmForm : std::uint8_t {
  beside_flag,  // the input travels in a slot; one rendezvous
  direct,       // parts of the peers' inputs are read where they lie; a second rendezvous
  share,        // AllReduce: each sums its share into everyone's output
};

/// Of an operation of at least two members whose counts are known. `element`: bytes of one.
ShmForm shm_form(const ShmSettings& settings, const ScheduleInput& sizes, Bytes element);

/// Elements of the input that a member sums up.
struct ShmBlock {
  Index first = 0, count = 0;
};
/// Shares of an AllReduce are whole cache lines, but for the last.
ShmBlock shm_sum_block(ShmForm form, const ScheduleInput& sizes, Bytes element, int member);

/// Closed form of what `member` sends and receives, in elements. A pulled part is sent by its
/// owner. With n members, N elements, b_m the block of m:
///   AllGather, Broadcast, AllToAllV: each part straight from its owner to its reader;
///   ReduceScatter: m receives (n-1) b_m and sends N - b_m;
///   AllReduce, by shares: both of that, and (n-1) b_m of sums out and N - b_m in;
///   AllReduce otherwise: (n-1) N out and in.
TrafficTotals shm_native_traffic(const ScheduleInput& sizes, Bytes element, int member,
                                 const ShmSettings& settings = {});

}  // namespace weft
