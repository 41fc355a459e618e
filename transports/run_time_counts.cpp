#include "transports/run_time_counts.hpp"

#include <fmt/format.h>

#include "patterns/error.hpp"

namespace weft {
namespace {

/// Fills counts and their running places; returns the total.
Index accumulate(const std::int32_t* rows, const RunTimeCounts& source, std::vector<Index>& counts,
                 std::vector<Index>& places, const std::string& label) {
  Index total = 0;
  for (std::size_t p = 0; p < counts.size(); ++p) {
    Index sum = 0;
    for (int i = 0; i < source.per_peer; ++i) {
      const std::int32_t count =
          rows[p * static_cast<std::size_t>(source.per_peer) + static_cast<std::size_t>(i)];
      if (count < 0) {
        fail(ExitCode::failed, fmt::format("all_to_all_v '{}': the run-time count {} of peer {} is "
                                           "negative; look at the step that wrote it",
                                           label, count, p));
      }
      sum += count;
    }
    counts[p] = sum * source.row_elements;
    places[p] = total;
    total += counts[p];
  }
  return total;
}

void check_capacity(Index needed, Index capacity, const char* side, const Operation& operation) {
  if (needed <= capacity) return;
  const Index row = operation.run_time->row_elements;
  fail(ExitCode::failed,
       fmt::format(
           "all_to_all_v '{}' needs {} rows to {} but its capacity is {} rows of {} elements; "
           "raise the declared capacity",
           operation.label, needed / row, side, capacity / row, row));
}

}  // namespace

ExchangeCounts::ExchangeCounts(int size)
    : send(static_cast<std::size_t>(size)), send_at(send), recv(send), recv_at(send) {}

void ExchangeCounts::resolve(const Operation& operation, int rank) {
  const RunTimeCounts& source = *operation.run_time;
  const Index sent = accumulate(source.send, source, send, send_at, operation.label);
  const Index received = accumulate(source.recv, source, recv, recv_at, operation.label);
  check_capacity(sent, operation.in.elements(), "send", operation);
  check_capacity(received, operation.out.elements(), "receive", operation);
  const auto me = static_cast<std::size_t>(rank);
  if (send[me] != recv[me]) {
    fail(ExitCode::failed,
         fmt::format("all_to_all_v '{}': rank {} of the group sends itself {} rows but expects {}",
                     operation.label, rank, send[me] / source.row_elements,
                     recv[me] / source.row_elements));
  }
}

}  // namespace weft
