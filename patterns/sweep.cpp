// Message-size sweeps: one collective, or one message, in place of a model.
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"

namespace weft {

namespace {

/// Elements of `bytes`; with all_to_all_v they must divide among the members.
Index elements_of(Bytes bytes, DType dtype, int parts, std::string_view what) {
  const Bytes unit = size_of(dtype) * parts;
  if (bytes <= 0 || bytes % unit != 0) {
    fail_usage(
        fmt::format("{} of {} bytes a rank in {} over {} ranks needs a positive multiple of {} "
                    "bytes; choose {}",
                    what, bytes, to_string(dtype), parts, unit,
                    bytes <= 0 ? unit : (bytes + unit - 1) / unit * unit));
  }
  return bytes / size_of(dtype);
}

Tensor buffer(std::string name, DType dtype, Index elements, bool input) {
  return input ? generated(std::move(name), dtype, 1, elements)
               : activation(std::move(name), dtype, 1, elements);
}

struct Sizes {
  Index in = 0, out = 0;
  std::vector<Index> counts, recv_counts;
};

/// What each operation takes and gives where every rank contributes n elements.
Sizes sizes_of(CollectiveKind kind, Index n, int members) {
  const std::vector<Index> each(static_cast<std::size_t>(members), n);
  switch (kind) {
    case CollectiveKind::all_gather:
      return {n, n * members, each, {}};
    case CollectiveKind::reduce_scatter:
      return {n * members, n, each, {}};
    case CollectiveKind::all_to_all_v: {
      const std::vector<Index> split(static_cast<std::size_t>(members), n / members);
      return {n, n, split, split};
    }
    case CollectiveKind::all_reduce:
    case CollectiveKind::broadcast:
      return {n, n, {}, {}};
  }
  return {};
}

void add_collective(Program& program, CollectiveKind kind, GroupId group, Dimension dim,
                    Bytes bytes, DType dtype) {
  const int members = program.groups[static_cast<std::size_t>(group)].ranks.size();
  const int parts = kind == CollectiveKind::all_to_all_v ? members : 1;
  const Sizes sizes = sizes_of(kind, elements_of(bytes, dtype, parts, to_string(kind)), members);
  Collective op;
  op.kind = kind;
  op.group = group;
  op.in = program.whole(program.add(buffer("in", dtype, sizes.in, true)));
  op.out = program.whole(program.add(buffer("out", dtype, sizes.out, false)));
  op.counts = sizes.counts;
  op.recv_counts = sizes.recv_counts;
  StepList(program.steps, Direction::forward, dim)
      .communicate(std::string(to_string(kind)), std::move(op));
}

/// Rank 0 of the group sends to rank 1; the others have nothing to do.
void add_message(Program& program, GroupId group, Dimension dim, int index, Bytes bytes,
                 DType dtype) {
  const int members = program.groups[static_cast<std::size_t>(group)].ranks.size();
  if (members < 2) fail_usage("a message needs two ranks, the group has 1; start more ranks");
  const Index n = elements_of(bytes, dtype, 1, "a message");
  if (index > 1) return;
  const bool sender = index == 0;
  SendRecv op;
  op.send = sender;
  op.group = group;
  op.peer = 1 - index;
  op.data = program.whole(program.add(buffer(sender ? "in" : "out", dtype, n, sender)));
  StepList(program.steps, Direction::forward, dim).communicate(sender ? "send" : "recv", op);
}

}  // namespace

Program make_sweep(CollectiveKind kind, bool point_to_point, const Layout& layout, Dimension dim,
                   Bytes bytes_per_rank, DType dtype, Rank rank) {
  Program program;
  const Group members = layout.group(dim, rank);
  const int index = members.ranks.index_of(rank);
  const GroupId group = program.add(members);
  if (point_to_point) {
    add_message(program, group, dim, index, bytes_per_rank, dtype);
  } else {
    add_collective(program, kind, group, dim, bytes_per_rank, dtype);
  }
  return program;
}

}  // namespace weft
