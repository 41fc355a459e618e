// Logical traffic of a program: what its operations must move, whatever algorithm moves it.
#include <algorithm>
#include <numeric>

#include "patterns/pattern.hpp"

namespace weft {

namespace {

class Accountant {
 public:
  Accountant(const Program& program, Rank rank) : program_(program), rank_(rank) {}

  std::vector<OperationTraffic> run() {
    for_each_leaf(program_.steps, [this](const Step& step, std::int64_t times) {
      if (times == 0) return;
      if (const auto* op = std::get_if<Collective>(&step.op)) {
        add(step, times, op->group, std::string(to_string(op->kind)), traffic_of(*op));
      } else if (const auto* message = std::get_if<SendRecv>(&step.op)) {
        add_send(step, times, *message);
      } else if (const auto* together = std::get_if<PostedTogether>(&step.op)) {
        for (const SendRecv& member : together->members) add_send(step, times, member);
      }
    });
    return std::move(operations_);
  }

 private:
  struct Sizes {
    Bytes message = 0, sent = 0;
    bool run_time = false;
  };

  void add(const Step& step, std::int64_t times, GroupId group, std::string operation,
           Sizes sizes) {
    operations_.push_back({.label = step.label,
                           .operation = std::move(operation),
                           .dim = step.dim,
                           .direction = step.direction,
                           .group = group_of(group),
                           .times = times,
                           .message = sizes.message,
                           .sent = sizes.sent,
                           .run_time = sizes.run_time});
  }

  /// A receive is the other side of a send that its sender accounts.
  void add_send(const Step& step, std::int64_t times, const SendRecv& op) {
    if (!op.send) return;
    const Bytes bytes = bytes_of(op.data);
    add(step, times, op.group, "send", {.message = bytes, .sent = bytes});
  }

  Sizes traffic_of(const Collective& op) const {
    const int n = group_of(op.group).ranks.size();
    const Bytes in = bytes_of(op.in), out = bytes_of(op.out);
    switch (op.kind) {
      case CollectiveKind::all_gather:
        return {.message = out, .sent = n > 1 ? out - in : 0};
      case CollectiveKind::reduce_scatter:
        return {.message = in, .sent = n > 1 ? in - out : 0};
      case CollectiveKind::all_reduce:
        return {.message = in, .sent = 2 * in * (n - 1) / n};
      case CollectiveKind::broadcast:
        return {.message = out, .sent = is_root(op) ? out * (n - 1) : 0};
      case CollectiveKind::all_to_all_v:
        return all_to_all(op, n);
    }
    return {};
  }

  Sizes all_to_all(const Collective& op, int n) const {
    const Bytes in = bytes_of(op.in);
    if (op.run_time) {
      // A buffer that must hold the worst case is larger than what it holds on average; what the
      // group sends it also receives, so the smaller of both capacities is the expectation of
      // either.
      const Bytes expected = std::min(in, bytes_of(op.out));
      return {.message = expected, .sent = expected * (n - 1) / n, .run_time = true};
    }
    const int me = index_in(op.group);
    if (me < 0) return {.message = in, .sent = in * (n - 1) / n};
    const Bytes element = size_of(tensor_of(op.in).dtype);
    return {.message = in, .sent = in - element * op.counts.at(static_cast<std::size_t>(me))};
  }

  bool is_root(const Collective& op) const {
    const int me = index_in(op.group);
    return me < 0 ? op.in.tensor >= 0 : me == op.root;
  }

  int index_in(GroupId group) const {
    return rank_ < 0 ? -1 : group_of(group).ranks.index_of(rank_);
  }
  const Group& group_of(GroupId id) const {
    return program_.groups.at(static_cast<std::size_t>(id));
  }
  const Tensor& tensor_of(const View& view) const {
    return program_.tensors.at(static_cast<std::size_t>(view.tensor));
  }
  Bytes bytes_of(const View& view) const {
    return view.tensor < 0 ? 0 : view.elements() * size_of(tensor_of(view).dtype);
  }

  const Program& program_;
  Rank rank_;
  std::vector<OperationTraffic> operations_;
};

}  // namespace

std::vector<OperationTraffic> operations_of(const Program& program, Rank rank) {
  return Accountant(program, rank).run();
}

Bytes logical_bytes(const Program& program) {
  Bytes total = 0;
  for (const OperationTraffic& operation : operations_of(program))
    total += operation.times * operation.message;
  return total;
}

Bytes memory_bytes(const Program& program) {
  return std::accumulate(program.tensors.begin(), program.tensors.end(), Bytes{0},
                         [](Bytes sum, const Tensor& tensor) { return sum + tensor.bytes(); });
}

}  // namespace weft
