#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "patterns/error.hpp"
#include "patterns/program.hpp"
#include "patterns/program_text.hpp"
#include "patterns/validate_compute.hpp"

namespace weft {

namespace {

Index sum(const std::vector<Index>& counts) {
  return std::accumulate(counts.begin(), counts.end(), Index{0});
}

class Validator {
 public:
  explicit Validator(const Program& program)
      : program_(program),
        written_(program.tensors.size(), false),
        read_at_(program.tensors.size()) {}

  void run() {
    for (const Tensor& tensor : program_.tensors) check_tensor(tensor);
    for (const Group& group : program_.groups) check_group(group);
    check_steps(program_.prologue, "prologue step", 0);
    check_steps(program_.steps, "step", 0);
    check_initialised();
  }

 private:
  [[noreturn]] void reject(const std::string& cause) const {
    fail_usage(fmt::format("{}: {}", where_, cause));
  }
  void require(bool ok, auto&& cause) const {
    if (!ok) reject(cause());
  }

  void check_tensor(const Tensor& t) {
    where_ = fmt::format("tensor '{}'", t.name);
    require(t.rows >= 0 && t.cols >= 0 && t.slots >= 1, [&] {
      return fmt::format(
          "{} slots of {}x{} cannot be stored; sizes must not be negative, slots at least 1",
          t.slots, t.rows, t.cols);
    });
    const bool inside = t.row_offset >= 0 && t.col_offset >= 0 &&
                        t.row_offset + t.rows <= t.global_rows &&
                        t.col_offset + t.cols <= t.global_cols;
    require(inside, [&] {
      return fmt::format("the block {}x{} at ({}, {}) lies outside the global {}x{}", t.rows,
                         t.cols, t.row_offset, t.col_offset, t.global_rows, t.global_cols);
    });
    const Index listed = static_cast<Index>(t.values.size());
    require(t.fill != Fill::values || (t.dtype == DType::i32 && listed == t.elements() * t.slots),
            [&] {
              return fmt::format("it lists {} values of {}; Fill::values needs i32 and {} of them",
                                 listed, to_string(t.dtype), t.elements() * t.slots);
            });
  }

  void check_group(const Group& group) {
    where_ = fmt::format("group {}", group_text(group));
    const auto& axes = group.ranks.axes;
    const bool counted = std::all_of(axes.begin(), axes.end(), [](const RankSet::Axis& axis) {
      return axis.count >= 1 && axis.stride >= 1;
    });
    require(group.ranks.base >= 0 && counted, [] {
      return std::string("its base must not be negative, its counts and strides at least 1");
    });
  }

  void check_steps(const std::vector<Step>& steps, const std::string& path, int depth) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::string here = fmt::format("{} {}", path, i);
      where_ = steps[i].label.empty() ? here : fmt::format("{} '{}'", here, steps[i].label);
      check_dependencies(steps[i], static_cast<StepId>(i), static_cast<StepId>(steps.size()),
                         depth);
      depth_ = depth;
      if (const auto* repeat = std::get_if<Repeat>(&steps[i].op)) {
        require(repeat->count >= 0, [&] {
          return fmt::format("it repeats {} times; choose 0 or more", repeat->count);
        });
        require(depth < 2,
                [] { return std::string("it nests repeats three deep; two levels are possible"); });
        check_steps(repeat->body, here + " body", depth + 1);
      } else {
        std::visit([this](const auto& op) { check_op(op); }, steps[i].op);
      }
    }
  }

  void check_dependencies(const Step& step, StepId self, StepId count, int depth) const {
    for (const Dependency& d : step.after) {
      require(d.step >= 0 && d.step < count, [&] {
        return fmt::format("it waits for step {}, but its list has {} steps", d.step, count);
      });
      require(d.distance >= 0 && (d.distance == 0 || depth > 0), [&] {
        return fmt::format(
            "it waits for step {} of {} rounds before; only inside a repeat are there earlier "
            "rounds",
            d.step, d.distance);
      });
      require(d.distance > 0 || d.step < self, [&] {
        return fmt::format(
            "it waits for step {}, which comes no earlier; wait for an earlier step, or for an "
            "earlier "
            "round of it",
            d.step);
      });
    }
  }

  const Tensor& tensor(const View& view) const {
    return program_.tensors[static_cast<std::size_t>(view.tensor)];
  }

  void check_view(std::string_view role, const View& v) const {
    const auto tensors = static_cast<TensorId>(program_.tensors.size());
    require(v.tensor >= 0 && v.tensor < tensors, [&] {
      return fmt::format("{} names tensor {}, but the program has {}", role, v.tensor, tensors);
    });
    const Tensor& t = tensor(v);
    require(v.slot >= 0 && v.slot < t.slots, [&] {
      return fmt::format("{} names slot {} of '{}', which has {}", role, v.slot, t.name, t.slots);
    });
    require((v.slot_per[0] == 0 || depth_ > 0) && (v.slot_per[1] == 0 || depth_ > 1), [&] {
      return fmt::format("{} moves through the slots of '{}' with repeats that it is not in", role,
                         t.name);
    });
    require(v.rows >= 0 && v.cols >= 0 && v.offset >= 0 && (v.rows <= 1 || v.ld >= v.cols), [&] {
      return fmt::format(
          "{} is {}x{} with ld {} at {} of '{}'; sizes must not be negative, ld at least the "
          "columns",
          role, v.rows, v.cols, v.ld, v.offset, t.name);
    });
    const Index end = v.elements() == 0 ? v.offset : v.offset + (v.rows - 1) * v.ld + v.cols;
    require(end <= t.elements(), [&] {
      return fmt::format("{} ends at element {} of '{}', which has {} ({}x{})", role, end, t.name,
                         t.elements(), t.rows, t.cols);
    });
  }

  void read(std::string_view role, const View& view) {
    check_view(role, view);
    std::string& first = read_at_[static_cast<std::size_t>(view.tensor)];
    if (first.empty() && view.elements() > 0) first = where_;
  }
  void write(std::string_view role, const View& view) {
    check_view(role, view);
    written_[static_cast<std::size_t>(view.tensor)] = true;
  }

  /// A tensor that nobody fills or writes, but someone reads, would hold whatever the memory held.
  void check_initialised() {
    for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
      const Tensor& t = program_.tensors[i];
      where_ = read_at_[i];
      require(where_.empty() || written_[i] || t.fill != Fill::none, [&] {
        return fmt::format(
            "it reads '{}', which no step writes and no fill sets; give the tensor a Fill", t.name);
      });
    }
  }

  void check_op(const Compute& op) {
    for (const View& view : op.in) read("an input", view);
    for (const View& view : op.out) write("an output", view);
    const std::string problem = compute_problem(program_, op);
    require(problem.empty(), [&] { return fmt::format("{}: {}", to_string(op.kind), problem); });
  }

  int group_size(GroupId id) const {
    const auto groups = static_cast<GroupId>(program_.groups.size());
    require(id >= 0 && id < groups,
            [&] { return fmt::format("it uses group {}, but the program has {}", id, groups); });
    return program_.groups[static_cast<std::size_t>(id)].ranks.size();
  }

  void contiguous(std::string_view role, const View& view) const {
    require(view.contiguous(), [&] {
      return fmt::format("{} {} is not contiguous; copy it to a tensor of its own first", role,
                         view_text(program_, view));
    });
  }

  void check_op(const SendRecv& op) {
    const int size = group_size(op.group);
    require(op.peer >= 0 && op.peer < size, [&] {
      return fmt::format("peer {} is no member of its group of {}; the last is {}", op.peer, size,
                         size - 1);
    });
    op.send ? read("the message", op.data) : write("the message", op.data);
    contiguous("the message", op.data);
  }

  void check_op(const PostedTogether& op) {
    for (const SendRecv& member : op.members) check_op(member);
    for (std::size_t i = 0; i < op.members.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) check_apart(op.members[i], op.members[j]);
    }
  }

  void check_apart(const SendRecv& a, const SendRecv& b) const {
    require((a.send && b.send) || !may_overlap(a.data, b.data), [&] {
      return fmt::format("two messages in flight together overlap in {}; give each its own memory",
                         view_text(program_, a.data));
    });
  }

  void check_op(const Repeat&) {}

  void check_op(const Collective& op);
  void check_sizes(const Collective& op, int n) const;
  void check_counts(std::string_view name, const std::vector<Index>& counts, int n,
                    const View& view) const;
  void check_run_time(const Collective& op, int n);

  const Program& program_;
  std::vector<bool> written_;
  std::vector<std::string> read_at_;  // the first step that reads the tensor
  std::string where_;
  int depth_ = 0;
};

void Validator::check_op(const Collective& op) {
  const int n = group_size(op.group);
  write("out", op.out);
  contiguous("out", op.out);
  // Only the root of a broadcast has an input.
  if (op.kind == CollectiveKind::broadcast && op.in.tensor < 0) {
    require(op.root >= 0 && op.root < n,
            [&] { return fmt::format("root {} is no member of {}", op.root, n); });
    return;
  }
  read("in", op.in);
  contiguous("in", op.in);
  require(tensor(op.in).dtype == tensor(op.out).dtype, [&] {
    return fmt::format("in is {} and out is {}; both must be stored alike",
                       to_string(tensor(op.in).dtype), to_string(tensor(op.out).dtype));
  });
  require(op.kind == CollectiveKind::all_to_all_v || !op.run_time,
          [] { return std::string("only all_to_all_v may have counts at run time"); });
  op.run_time ? check_run_time(op, n) : check_sizes(op, n);
  const bool may_share =
      op.kind == CollectiveKind::broadcast || op.kind == CollectiveKind::all_gather;
  require(may_share || !may_overlap(op.in, op.out), [&] {
    return fmt::format("in {} and out {} overlap; {} writes to other memory than it reads",
                       view_text(program_, op.in), view_text(program_, op.out), to_string(op.kind));
  });
}

void Validator::check_sizes(const Collective& op, int n) const {
  const auto equal = [&] {
    require(op.in.elements() == op.out.elements(), [&] {
      return fmt::format("in has {} elements and out {}; they must be equal", op.in.elements(),
                         op.out.elements());
    });
  };
  const auto one_of_counts = [&](std::string_view name, const View& view) {
    require(std::find(op.counts.begin(), op.counts.end(), view.elements()) != op.counts.end(), [&] {
      return fmt::format("{} has {} elements, which is none of the counts; it must be this rank's",
                         name, view.elements());
    });
  };
  switch (op.kind) {
    case CollectiveKind::all_reduce:
      return equal();
    case CollectiveKind::broadcast:
      require(op.root >= 0 && op.root < n,
              [&] { return fmt::format("root {} is no member of {}", op.root, n); });
      return equal();
    case CollectiveKind::all_gather:
      check_counts("counts", op.counts, n, op.out);
      return one_of_counts("in", op.in);
    case CollectiveKind::reduce_scatter:
      check_counts("counts", op.counts, n, op.in);
      return one_of_counts("out", op.out);
    case CollectiveKind::all_to_all_v:
      check_counts("counts", op.counts, n, op.in);
      return check_counts("recv_counts", op.recv_counts, n, op.out);
  }
}

void Validator::check_counts(std::string_view name, const std::vector<Index>& counts, int n,
                             const View& view) const {
  require(static_cast<int>(counts.size()) == n, [&] {
    return fmt::format("{} has {} entries for {} members; it needs one each", name, counts.size(),
                       n);
  });
  require(std::none_of(counts.begin(), counts.end(), [](Index count) { return count < 0; }),
          [&] { return fmt::format("{} has a negative entry", name); });
  require(sum(counts) == view.elements(), [&] {
    return fmt::format("{} sums to {} elements but {} has {}", name, sum(counts),
                       view_text(program_, view), view.elements());
  });
}

void Validator::check_run_time(const Collective& op, int n) {
  const CountsRef& ref = *op.run_time;
  require(op.counts.empty() && op.recv_counts.empty(),
          [] { return std::string("with counts at run time the fixed counts must be empty"); });
  require(ref.per_peer >= 1 && ref.row_elements >= 1, [&] {
    return fmt::format("{} counts per peer of rows of {} elements; both must be at least 1",
                       ref.per_peer, ref.row_elements);
  });
  for (const View* view : {&ref.send, &ref.recv}) {
    read("a count", *view);
    contiguous("a count", *view);
    require(tensor(*view).dtype == DType::i32 && view->elements() == Index{n} * ref.per_peer, [&] {
      return fmt::format("{} of {} must hold {} i32 counts, {} for each of {} members",
                         view_text(program_, *view), to_string(tensor(*view).dtype),
                         Index{n} * ref.per_peer, ref.per_peer, n);
    });
  }
  for (const View* view : {&op.in, &op.out}) {
    require(view->elements() % ref.row_elements == 0, [&] {
      return fmt::format("{} is no whole number of rows of {} elements", view_text(program_, *view),
                         ref.row_elements);
    });
  }
}

}  // namespace

void validate(const Program& program) { Validator(program).run(); }

}  // namespace weft
