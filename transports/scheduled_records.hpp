// What the ranks of a scheduled session tell each other in commit(): their new operations, with the
// places of the memory in their arenas. One record per rank, exchanged with one all_gather.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transports/communicator.hpp"

namespace weft {

struct PointRecord {
  bool send = true;
  int peer = 0;     // index in the group
  Bytes place = 0;  // in the arena
  Bytes bytes = 0;
};

struct OperationRecord {
  OperationKind kind = OperationKind::all_reduce;
  DType dtype = DType::f32;
  int root = 0;
  Bytes in = 0, out = 0;   // places in the arena
  Index elements = 0;      // all_reduce, broadcast: of `out`; else 0
  Index row_elements = 0;  // run-time counts: elements of a row; 0: the counts are known
  std::vector<Index> counts, recv_counts;
  std::vector<PointRecord> members;
  std::string label;
};

struct CommRecord {
  Dimension dim = Dimension::none;
  std::vector<Rank> ranks;
  Bytes control = 0;  // place of the control area of run-time counts
  std::vector<OperationRecord> operations;
};

struct RankRecord {
  Bytes scratch = 0;  // place of the scratch of this commit
  std::string error;  // error_record() of why this rank cannot commit; empty: it can
  std::vector<CommRecord> comms;
};

/// Bytes of a record and back. Throws Error(failed) on bytes that are no record.
std::vector<std::byte> pack(const RankRecord& record);
RankRecord unpack(std::span<const std::byte> bytes);

}  // namespace weft
