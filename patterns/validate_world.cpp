#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "patterns/error.hpp"
#include "patterns/program.hpp"
#include "patterns/validate_match.hpp"

namespace weft {

namespace {

/// One rank on its way through its flat steps.
struct Walker {
  explicit Walker(std::vector<FlatStep> flat)
      : steps(std::move(flat)), done(steps.size(), false), open(steps.size(), 0) {
    for (std::size_t i = 0; i < steps.size(); ++i)
      queue(steps[i].stream).push_back(static_cast<int>(i));
  }

  std::vector<int>& queue(StreamRole stream) { return queues[static_cast<std::size_t>(stream)]; }
  bool finished() const { return head[0] == queues[0].size() && head[1] == queues[1].size(); }

  std::vector<FlatStep> steps;
  std::array<std::vector<int>, 2> queues;  // by stream, in order
  std::array<std::size_t, 2> head{0, 0};   // the first step that is not done
  std::array<bool, 2> started{false, false};
  std::vector<bool> done;
  std::vector<int> open;  // operations that a started step still waits for
};

class World {
 public:
  World(const std::vector<Program>& programs, const std::vector<Step> Program::*list)
      : list_name_(list == &Program::prologue ? "prologue step" : "step"),
        match_(programs, [this](Posted who) { return where(who); }) {
    walkers_.reserve(programs.size());
    for (const Program& program : programs) walkers_.emplace_back(flatten(program, program.*list));
  }

  void play() {
    // Taken from the back, so rank 0 comes first and errors name the lower rank first.
    for (auto rank = static_cast<Rank>(walkers_.size()); rank > 0; --rank)
      ready_.push_back(rank - 1);
    while (!ready_.empty()) {
      const Rank rank = ready_.back();
      ready_.pop_back();
      advance(rank);
    }
    const bool all =
        std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.finished(); });
    if (!all) report_stuck();
  }

 private:
  /// Starts what can start on both streams of a rank until nothing moves.
  void advance(Rank rank) {
    Walker& walker = walkers_[static_cast<std::size_t>(rank)];
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stream = 0; stream < 2; ++stream) {
        if (!can_start(walker, stream)) continue;
        start(rank, stream);
        moved = true;
      }
    }
  }

  static bool can_start(const Walker& walker, std::size_t stream) {
    if (walker.started[stream] || walker.head[stream] == walker.queues[stream].size()) return false;
    const auto step = static_cast<std::size_t>(walker.queues[stream][walker.head[stream]]);
    const auto& after = walker.steps[step].after;
    return std::all_of(after.begin(), after.end(), [&walker](int earlier) {
      return walker.done[static_cast<std::size_t>(earlier)];
    });
  }

  void start(Rank rank, std::size_t stream) {
    Walker& walker = walkers_[static_cast<std::size_t>(rank)];
    const Posted who{.rank = rank, .step = walker.queues[stream][walker.head[stream]]};
    const auto index = static_cast<std::size_t>(who.step);
    walker.started[stream] = true;
    const Op& op = walker.steps[index].op;
    if (const auto* collective = std::get_if<Collective>(&op)) {
      walker.open[index] = 1;
      close(match_.enter(who, *collective));
    } else if (const auto* message = std::get_if<SendRecv>(&op)) {
      walker.open[index] = 1;
      close(match_.post(who, *message));
    } else if (const auto* together = std::get_if<PostedTogether>(&op);
               together && !together->members.empty()) {
      walker.open[index] = static_cast<int>(together->members.size());
      for (const SendRecv& member : together->members) close(match_.post(who, member));
    } else {
      finish(who);
    }
  }

  void close(const std::vector<Posted>& met) {
    for (Posted who : met) {
      if (--walkers_[static_cast<std::size_t>(who.rank)].open[static_cast<std::size_t>(who.step)] ==
          0)
        finish(who);
    }
  }

  void finish(Posted who) {
    Walker& walker = walkers_[static_cast<std::size_t>(who.rank)];
    const auto index = static_cast<std::size_t>(who.step);
    const auto stream = static_cast<std::size_t>(walker.steps[index].stream);
    walker.done[index] = true;
    walker.started[stream] = false;
    ++walker.head[stream];
    ready_.push_back(who.rank);
  }

  /// "rank 1 in step 3 'send a' (round 2)".
  std::string where(Posted who) const {
    const FlatStep& step =
        walkers_[static_cast<std::size_t>(who.rank)].steps[static_cast<std::size_t>(who.step)];
    std::string text = fmt::format("rank {} in {} {}", who.rank, list_name_, step.origin);
    if (!step.label.empty()) text += fmt::format(" '{}'", step.label);
    if (step.round[0] > 0 || step.round[1] > 0)
      text += fmt::format(" (round {}.{})", step.round[0], step.round[1]);
    return text;
  }

  static std::string ranks_text(const std::vector<Rank>& ranks) {
    constexpr std::size_t shown = 8;
    if (ranks.size() <= shown) return fmt::format("{}", fmt::join(ranks, ", "));
    return fmt::format("{} and {} more", fmt::join(ranks.begin(), ranks.begin() + shown, ", "),
                       ranks.size() - shown);
  }

  std::string waiting_text(const Blocked& blocked) const {
    return fmt::format("{} waits in {} for rank {}", where(blocked.who), blocked.what,
                       ranks_text(blocked.awaited));
  }

  /// Nothing moves: either somebody waits for a rank that is through, or the waiting goes round in
  /// a circle.
  [[noreturn]] void report_stuck() const {
    const std::vector<Blocked> blocked = match_.blocked();
    for (const Blocked& one : blocked) {
      for (Rank rank : one.awaited) {
        if (!walkers_[static_cast<std::size_t>(rank)].finished()) continue;
        fail_usage(fmt::format(
            "unmatched operation: {}, but rank {} has ended without it; give rank {} the matching "
            "step, or take this one away",
            waiting_text(one), rank, rank));
      }
    }
    constexpr std::size_t shown = 8;
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < std::min(shown, blocked.size()); ++i)
      parts.push_back(waiting_text(blocked[i]));
    if (blocked.size() > shown) parts.push_back(fmt::format("and {} more", blocked.size() - shown));
    fail_usage(fmt::format(
        "deadlock with zero buffering: {}; let all ranks enter collectives in one order, and post "
        "sends and receives that cross together (PostedTogether)",
        fmt::join(parts, "; ")));
  }

  std::string_view list_name_;
  std::vector<Walker> walkers_;
  std::vector<Rank> ready_;
  WorldMatch match_;
};

}  // namespace

void validate_world(const std::vector<Program>& programs) {
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    try {
      validate(programs[rank]);
      validate_streams(programs[rank]);
    } catch (const Error& error) {
      fail(error.code(), fmt::format("rank {}: {}", rank, error.what()));
    }
  }
  World(programs, &Program::prologue).play();
  World(programs, &Program::steps).play();
}

}  // namespace weft
