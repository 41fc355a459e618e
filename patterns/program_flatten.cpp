// Expansion of repeats into the flat list that an executor runs.
#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "patterns/program.hpp"

namespace weft {

namespace {

/// The last flat step of each stream that a step (a leaf, or a whole repeat) became; -1 where it
/// has none.
using Ends = std::array<int, 2>;
constexpr Ends no_ends{-1, -1};

class Flattener {
 public:
  explicit Flattener(const Program& program) : program_(program) {}

  std::vector<FlatStep> run(const std::vector<Step>& steps) {
    std::vector<std::vector<Ends>> rounds;
    expand_round(steps, 0, rounds, {});
    return std::move(flat_);
  }

 private:
  /// Expands `steps` once and appends what its steps became to `rounds`. `inherited` are the flat
  /// steps that the first step of each stream waits for: what an enclosing repeat depends on.
  void expand_round(const std::vector<Step>& steps, int depth,
                    std::vector<std::vector<Ends>>& rounds, std::vector<int> inherited) {
    rounds.emplace_back(steps.size(), no_ends);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (depth == 0) origin_ = static_cast<StepId>(i);
      std::vector<int> after = resolve(steps[i], rounds);
      after.insert(after.end(), inherited.begin(), inherited.end());
      rounds.back()[i] = expand_step(steps[i], depth, std::move(after));
    }
  }

  Ends expand_step(const Step& step, int depth, std::vector<int> after) {
    const auto* repeat = std::get_if<Repeat>(&step.op);
    return repeat ? expand_repeat(*repeat, step.label, depth, after)
                  : add_leaf(step, std::move(after));
  }

  Ends expand_repeat(const Repeat& repeat, const std::string& label, int depth,
                     const std::vector<int>& after) {
    if (depth == 2) {
      fail_usage(fmt::format("repeat '{}' is the third level of nesting; two are possible", label));
    }
    std::vector<std::vector<Ends>> rounds;
    const int first = static_cast<int>(flat_.size());
    for (int i = 0; i < repeat.count; ++i) {
      round_[static_cast<std::size_t>(depth)] = i;
      expand_round(repeat.body, depth + 1, rounds, after);
    }
    round_[static_cast<std::size_t>(depth)] = 0;
    return ends_since(first);
  }

  Ends ends_since(int first) const {
    Ends ends = no_ends;
    for (int i = static_cast<int>(flat_.size()) - 1; i >= first && (ends[0] < 0 || ends[1] < 0);
         --i) {
      int& end = ends[static_cast<std::size_t>(flat_[static_cast<std::size_t>(i)].stream)];
      if (end < 0) end = i;
    }
    return ends;
  }

  Ends add_leaf(const Step& step, std::vector<int> after) {
    const auto stream = static_cast<std::size_t>(step.stream);
    FlatStep leaf{.op = step.op,
                  .stream = step.stream,
                  .after = new_waits(stream, after),
                  .label = step.label,
                  .dim = step.dim,
                  .direction = step.direction,
                  .origin = origin_,
                  .round = round_};
    std::visit([this](auto& op) { resolve_slots(op); }, leaf.op);
    flat_.push_back(std::move(leaf));
    Ends ends = no_ends;
    ends[stream] = static_cast<int>(flat_.size()) - 1;
    return ends;
  }

  /// What the order of the streams does not imply already: of all dependencies the latest on the
  /// other stream, unless an earlier step of this stream has waited for it.
  std::vector<int> new_waits(std::size_t stream, const std::vector<int>& after) {
    int latest = -1;
    for (int step : after) {
      const auto& other = flat_[static_cast<std::size_t>(step)];
      if (static_cast<std::size_t>(other.stream) != stream) latest = std::max(latest, step);
    }
    if (latest <= waited_[stream]) return {};
    waited_[stream] = latest;
    return {latest};
  }

  /// The flat indices that the dependencies of a step name; instances before the first round do not
  /// exist.
  std::vector<int> resolve(const Step& step, const std::vector<std::vector<Ends>>& rounds) const {
    std::vector<int> after;
    for (const Dependency& dependency : step.after) {
      if (dependency.distance >= static_cast<int>(rounds.size())) continue;
      const auto& round = rounds[rounds.size() - 1 - static_cast<std::size_t>(dependency.distance)];
      for (int end : round.at(static_cast<std::size_t>(dependency.step))) {
        if (end >= 0) after.push_back(end);
      }
    }
    return after;
  }

  void resolve_slots(View& view) const {
    if (view.tensor < 0) return;
    const int slots = program_.tensors.at(static_cast<std::size_t>(view.tensor)).slots;
    const std::int64_t slot = view.slot + std::int64_t{view.slot_per[0]} * round_[0] +
                              std::int64_t{view.slot_per[1]} * round_[1];
    view.slot = static_cast<int>((slot % slots + slots) % slots);
    view.slot_per = {0, 0};
  }
  void resolve_slots(Compute& op) const {
    for (View& view : op.in) resolve_slots(view);
    for (View& view : op.out) resolve_slots(view);
  }
  void resolve_slots(Collective& op) const {
    resolve_slots(op.in);
    resolve_slots(op.out);
    if (!op.run_time) return;
    resolve_slots(op.run_time->send);
    resolve_slots(op.run_time->recv);
  }
  void resolve_slots(SendRecv& op) const { resolve_slots(op.data); }
  void resolve_slots(PostedTogether& op) const {
    for (SendRecv& member : op.members) resolve_slots(member.data);
  }
  void resolve_slots(Repeat&) const {}

  const Program& program_;
  std::vector<FlatStep> flat_;
  std::array<int, 2> waited_{-1, -1};  // by stream: the latest step of the other one waited for
  StepId origin_ = -1;
  std::array<int, 2> round_{0, 0};
};

}  // namespace

std::vector<FlatStep> flatten(const Program& program, const std::vector<Step>& steps) {
  return Flattener(program).run(steps);
}

}  // namespace weft
