// Collectives to try the schedules on: even counts, uneven ones, and ones with zeros.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "transports/schedule.hpp"

namespace weft {

enum class Counts { even, uneven, zeros };

inline Index count_at(Counts shape, int i) {
  switch (shape) {
    case Counts::even:
      return 4;
    case Counts::uneven:
      return 1 + (i * 7 + 3) % 5;
    case Counts::zeros:
      break;
  }
  return i % 3 == 1 ? 2 + i % 2 : 0;
}

inline ScheduleInput make_input(OperationKind kind, int n, Counts shape, std::vector<int> hosts) {
  ScheduleInput input;
  input.kind = kind;
  input.size = n;
  input.hosts = std::move(hosts);
  if (kind == OperationKind::all_to_all_v) {
    for (int from = 0; from < n; ++from) {
      input.matrix.emplace_back();
      for (int to = 0; to < n; ++to)
        input.matrix.back().push_back(count_at(shape, from * 5 + to * 11 + from * to));
    }
  } else if (kind == OperationKind::all_reduce || kind == OperationKind::broadcast) {
    const Index totals[] = {4 * n, 3 * n + 5, n / 2};
    input.counts = {totals[static_cast<int>(shape)]};
    input.root = kind == OperationKind::broadcast ? (n * 2) / 3 : 0;
  } else {
    for (int i = 0; i < n; ++i) input.counts.push_back(count_at(shape, i));
  }
  return input;
}

inline Index sum_of(const std::vector<Index>& counts, int end) {
  return std::accumulate(counts.begin(), counts.begin() + end, Index{0});
}

}  // namespace weft
