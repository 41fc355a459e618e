#include "transports/shm_native_sizes.hpp"

#include <algorithm>
#include <numeric>

#include "transports/schedule_builders.hpp"
#include "transports/shm_flags.hpp"

namespace weft {
namespace {

constexpr Bytes kLine = 64;

/// The longest input of a member: what a slot must hold.
Index longest_input(const ScheduleInput& sizes) {
  const auto total = [](const std::vector<Index>& counts) {
    return std::accumulate(counts.begin(), counts.end(), Index{0});
  };
  if (sizes.kind == OperationKind::reduce_scatter) return total(sizes.counts);
  Index longest = 0;
  for (const auto& row : sizes.matrix) longest = std::max(longest, total(row));
  for (const Index count : sizes.counts) longest = std::max(longest, count);
  return longest;
}

bool is_sum(OperationKind kind) {
  return kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter;
}

/// n-1 messages of the member's block one way, and everyone else's block once the other way.
TrafficTotals scatter_traffic(const ScheduleInput& sizes, ShmForm form, Bytes element, int member) {
  TrafficTotals t;
  for (int m = 0; m < sizes.size; ++m) {
    if (m == member) continue;
    const Index given = shm_sum_block(form, sizes, element, m).count;
    t.sent += given;
    t.messages_sent += given > 0;
    t.sent_to_other_hosts += same_host(sizes, m, member) ? 0 : given;
    t.received += shm_sum_block(form, sizes, element, member).count;
  }
  return t;
}

/// The sums of a member's share, to everyone.
TrafficTotals spread_traffic(const ScheduleInput& sizes, Bytes element, int member) {
  TrafficTotals t;
  const Index own = shm_sum_block(ShmForm::share, sizes, element, member).count;
  for (int m = 0; m < sizes.size; ++m) {
    if (m == member) continue;
    t.sent += own;
    t.messages_sent += own > 0;
    t.sent_to_other_hosts += same_host(sizes, m, member) ? 0 : own;
    t.received += shm_sum_block(ShmForm::share, sizes, element, m).count;
  }
  return t;
}

/// Part of `from`'s input that `to` pulls.
Index part(const ScheduleInput& sizes, int from, int to) {
  if (sizes.kind == OperationKind::all_to_all_v) return cell(sizes, from, to);
  if (sizes.kind == OperationKind::broadcast) return from == sizes.root ? sizes.counts[0] : 0;
  return count_of(sizes, from);
}

TrafficTotals pull_traffic(const ScheduleInput& sizes, int member) {
  TrafficTotals t;
  for (int m = 0; m < sizes.size; ++m) {
    if (m == member) continue;
    const Index given = part(sizes, member, m);
    t.sent += given;
    t.messages_sent += given > 0;
    t.sent_to_other_hosts += same_host(sizes, m, member) ? 0 : given;
    t.received += part(sizes, m, member);
  }
  return t;
}

}  // namespace

ShmForm shm_form(const ShmSettings& settings, const ScheduleInput& sizes, Bytes element) {
  const bool all_reduce = sizes.kind == OperationKind::all_reduce;
  const ShmForm large = all_reduce ? ShmForm::share : ShmForm::direct;
  if (settings.bare) return large;
  const ShmThresholds& limits = settings.thresholds;
  const Bytes bytes = longest_input(sizes) * element;
  const Bytes beside = is_sum(sizes.kind) ? limits.sum_beside_flag : limits.exchange_beside_flag;
  if (bytes <= std::min(beside, Slot::kPayload)) return ShmForm::beside_flag;
  return all_reduce && bytes <= limits.sum_whole ? ShmForm::direct : large;
}

ShmBlock shm_sum_block(ShmForm form, const ScheduleInput& sizes, Bytes element, int member) {
  if (sizes.kind == OperationKind::reduce_scatter) {
    const Blocks blocks(sizes.counts);
    return {blocks.offset(member), blocks.count(member)};
  }
  const Index total = sizes.counts[0];
  if (form != ShmForm::share) return {0, total};
  const Index line = kLine / element, lines = (total + line - 1) / line;
  const Blocks shares = Blocks::even(lines, sizes.size);
  const Index first = std::min(shares.offset(member) * line, total);
  return {first, std::min(shares.offset(member + 1) * line, total) - first};
}

TrafficTotals shm_native_traffic(const ScheduleInput& sizes, Bytes element, int member,
                                 const ShmSettings& settings) {
  if (sizes.size < 2) return {};
  if (!is_sum(sizes.kind)) return pull_traffic(sizes, member);
  const ShmForm form = shm_form(settings, sizes, element);
  const TrafficTotals summands = scatter_traffic(sizes, form, element, member);
  return form == ShmForm::share ? summands + spread_traffic(sizes, element, member) : summands;
}

}  // namespace weft
