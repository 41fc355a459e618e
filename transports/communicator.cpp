#include "transports/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "patterns/error.hpp"
#include "transports/touch.hpp"

namespace weft {
namespace {

/// The checks of prepare(): they see one rank only. What members must agree on is checked in
/// commit().
class OperationCheck {
 public:
  OperationCheck(const Operation& operation, int rank, int size)
      : op_(operation), rank_(rank), size_(size) {}

  void run() const {
    switch (op_.kind) {
      case OperationKind::all_gather:
        return all_gather();
      case OperationKind::all_reduce:
        return all_reduce();
      case OperationKind::reduce_scatter:
        return reduce_scatter();
      case OperationKind::broadcast:
        return broadcast();
      case OperationKind::all_to_all_v:
        return op_.run_time ? run_time() : all_to_all_v();
      case OperationKind::point_to_point:
        return point_to_point();
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& why) const {
    fail_usage(
        fmt::format("{} '{}' of a group of {}: {}", to_string(op_.kind), op_.label, size_, why));
  }
  void need(bool holds, const std::string& why) const {
    if (!holds) wrong(why);
  }
  void view(const BoundView& v, const char* name) const {
    need(v.data != nullptr || v.elements() == 0, fmt::format("`{}` has no memory", name));
    need(v.ld == v.cols || v.rows <= 1,
         fmt::format("`{}` is not contiguous: {} columns, leading dimension {}", name, v.cols,
                     v.ld));
  }
  void typed_view(const BoundView& v, const char* name) const {
    view(v, name);
    need(v.dtype == op_.dtype, fmt::format("`{}` is {}, the operation is {}", name,
                                           to_string(v.dtype), to_string(op_.dtype)));
  }
  void elements(const BoundView& v, const char* name, Index expected) const {
    typed_view(v, name);
    need(v.elements() == expected,
         fmt::format("`{}` has {} elements; the counts say {}", name, v.elements(), expected));
  }
  void counts(const std::vector<Index>& c, const char* name) const {
    need(static_cast<int>(c.size()) == size_,
         fmt::format("`{}` has {} entries; give one per member", name, c.size()));
    need(std::all_of(c.begin(), c.end(), [](Index n) { return n >= 0; }),
         fmt::format("`{}` has a negative entry", name));
  }
  static Index total(const std::vector<Index>& c) {
    return std::accumulate(c.begin(), c.end(), Index{0});
  }
  Index mine(const std::vector<Index>& c) const { return c[static_cast<std::size_t>(rank_)]; }
  bool overlap() const {
    const BoundView &a = op_.in, &b = op_.out;
    return a.bytes() > 0 && b.bytes() > 0 && a.data < b.data + b.bytes() &&
           b.data < a.data + a.bytes();
  }
  void apart() const {
    need(!overlap(), "`in` and `out` share memory; give it an output of its own");
  }
  void summable() const {
    need(op_.dtype != DType::i32, "sums are for f32, bf16 and f16, not i32");
  }

  void all_gather() const {
    counts(op_.counts, "counts");
    elements(op_.in, "in", mine(op_.counts));
    elements(op_.out, "out", total(op_.counts));
    const auto first = std::accumulate(op_.counts.begin(), op_.counts.begin() + rank_, Index{0});
    const bool in_place = op_.in.data == op_.out.data + first * size_of(op_.dtype);
    need(in_place || !overlap(), "`in` overlaps `out` elsewhere than at this rank's own block");
  }
  void all_reduce() const {
    summable();
    typed_view(op_.in, "in");
    elements(op_.out, "out", op_.in.elements());
    apart();
  }
  void reduce_scatter() const {
    summable();
    counts(op_.counts, "counts");
    elements(op_.in, "in", total(op_.counts));
    elements(op_.out, "out", mine(op_.counts));
    apart();
  }
  void broadcast() const {
    need(op_.root >= 0 && op_.root < size_,
         fmt::format("there is no member {} to be root", op_.root));
    typed_view(op_.out, "out");
    if (rank_ != op_.root) return;
    elements(op_.in, "in", op_.out.elements());
    need(op_.in.data == op_.out.data || !overlap(), "`in` overlaps a part of `out`");
  }
  void all_to_all_v() const {
    counts(op_.counts, "counts");
    counts(op_.recv_counts, "recv_counts");
    elements(op_.in, "in", total(op_.counts));
    elements(op_.out, "out", total(op_.recv_counts));
    need(mine(op_.counts) == mine(op_.recv_counts), "sends itself other than it expects of itself");
    apart();
  }
  void run_time() const {
    need(op_.run_time->send != nullptr && op_.run_time->recv != nullptr,
         "run-time counts are missing");
    need(op_.run_time->per_peer > 0 && op_.run_time->row_elements > 0,
         "per_peer and row_elements must be 1 or more");
    typed_view(op_.in, "in");
    typed_view(op_.out, "out");
    apart();
  }
  void point_to_point() const {
    for (const PointToPoint& m : op_.members) {
      need(m.peer >= 0 && m.peer < size_, fmt::format("there is no member {}", m.peer));
      need(m.peer != rank_, "a rank cannot send to itself; use a copy step");
      view(m.data, m.send ? "send" : "recv");
    }
  }

  const Operation& op_;
  int rank_, size_;
};

}  // namespace

std::string_view to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::all_to_all_v:
      return "all_to_all_v";
    case OperationKind::point_to_point:
      return "point_to_point";
  }
  return "unknown";
}

Communicator::Communicator(std::vector<Rank> ranks, int rank, Dimension dim)
    : ranks_(std::move(ranks)), rank_(rank), dim_(dim) {}

OperationId Communicator::prepare(const Operation& operation) {
  OperationCheck(operation, rank_, size()).run();
  const auto id = static_cast<OperationId>(operations_.size());
  operations_.push_back(std::make_unique<const Operation>(operation));
  do_prepare(id, *operations_.back());
  return id;
}

[[gnu::hot]] void Communicator::run(OperationId id, Stream& stream) {
  if (static_cast<std::size_t>(id) >= operations_.size()) {  // or negative
    fail_usage(
        fmt::format("operation {} was never prepared; this group has {}", id, operations_.size()));
  }
  struct Progress {
    std::atomic<const char*>& slot;
    ~Progress() { slot.store(nullptr, std::memory_order_relaxed); }
  } progress{in_progress_};
  in_progress_.store(operation(id).label.c_str(), std::memory_order_relaxed);
  do_run(id, stream);
}

void Communicator::touch(OperationId id) const {
  const Operation& op = operation(id);
  weft::touch(&op, sizeof op);
  touch_all(op.counts);
  touch_all(op.recv_counts);
  touch_all(op.members);
  touch_all(op.label);
  do_touch(id);
}

}  // namespace weft
