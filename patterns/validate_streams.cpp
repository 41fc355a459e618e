// Races between the two streams of a rank: the same memory, at least one write, and no `after`
// between.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "patterns/error.hpp"
#include "patterns/program.hpp"
#include "patterns/program_text.hpp"
#include "patterns/validate_compute.hpp"

namespace weft {

namespace {

struct Access {
  int step = -1;  // flat index
  View view;
  bool writes = false;
};

class RaceCheck {
 public:
  RaceCheck(const Program& program, const std::vector<Step>& steps)
      : program_(program), flat_(flatten(program, steps)) {}

  /// Dependencies point back, so two steps of different streams are ordered exactly if the later
  /// one, or a step before it on its stream, waits for the earlier one or for a step after that.
  void run() {
    for (int i = 0; i < static_cast<int>(flat_.size()); ++i) {
      const FlatStep& step = flat_[static_cast<std::size_t>(i)];
      for (int earlier : step.after) {
        int& waited = waited_[static_cast<std::size_t>(step.stream)];
        waited = std::max(waited, earlier);
      }
      std::visit([this, i](const auto& op) { visit(op, i); }, step.op);
    }
  }

 private:
  void visit(const Compute& op, int step) {
    for (const View& view : op.in) touch({step, view, false});
    for (const View& view : op.out) touch({step, view, true});
  }
  void visit(const Collective& op, int step) {
    touch({step, op.in, false});
    touch({step, op.out, true});
    if (!op.run_time) return;
    touch({step, op.run_time->send, false});
    touch({step, op.run_time->recv, false});
  }
  void visit(const SendRecv& op, int step) { touch({step, op.data, !op.send}); }
  void visit(const PostedTogether& op, int step) {
    for (const SendRecv& member : op.members) visit(member, step);
  }
  void visit(const Repeat&, int) {}

  void touch(const Access& access) {
    if (access.view.tensor < 0) return;
    const auto stream =
        static_cast<std::size_t>(flat_[static_cast<std::size_t>(access.step)].stream);
    auto& both = accesses_[{access.view.tensor, access.view.slot}];
    std::deque<Access>& others = both[1 - stream];
    while (!others.empty() && others.front().step <= waited_[stream]) others.pop_front();
    for (const Access& other : others) {
      if ((access.writes || other.writes) && may_overlap(access.view, other.view))
        report(other, access);
    }
    both[stream].push_back(access);
  }

  std::string step_text(const Access& access) const {
    const FlatStep& step = flat_[static_cast<std::size_t>(access.step)];
    std::string text =
        fmt::format("step {} '{}' on {}", step.origin, step.label, to_string(step.stream));
    if (step.round[0] > 0 || step.round[1] > 0)
      text += fmt::format(" (round {}.{})", step.round[0], step.round[1]);
    return text;
  }

  [[noreturn]] void report(const Access& first, const Access& second) const {
    fail_usage(fmt::format(
        "{} {} {} while {} may still {} {}; make the later one wait with `after`",
        step_text(second), second.writes ? "writes" : "reads", view_text(program_, second.view),
        step_text(first), first.writes ? "write" : "read", view_text(program_, first.view)));
  }

  const Program& program_;
  const std::vector<FlatStep> flat_;
  std::array<int, 2> waited_{
      -1, -1};  // by stream: the latest step of the other one that is surely done
  std::map<std::pair<TensorId, int>, std::array<std::deque<Access>, 2>>
      accesses_;  // by tensor and slot, by stream
};

}  // namespace

void validate_streams(const Program& program) {
  RaceCheck(program, program.prologue).run();
  RaceCheck(program, program.steps).run();
}

}  // namespace weft
