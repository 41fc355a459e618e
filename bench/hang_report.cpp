#include "bench/hang_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace weft {
namespace {

using Condition = RankState::Condition;

struct Seen {
  RankState state;
  std::string host;
};

const char* word(Condition condition) {
  switch (condition) {
    case Condition::stopped:
      return "stopped";
    case Condition::dead:
      return "dead";
    case Condition::silent:
      return "silent";
    case Condition::blocked:
      return "blocked in the kernel";
    case Condition::alive:
      break;
  }
  return "alive";
}

/// "rank 3", "ranks 0-2 5"
std::string ranks_text(const std::vector<Rank>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i ? fmt::format("{}", ranks[i])
                              : fmt::format("{}-{}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(parts, " "));
}

/// Ranks of which the same is to be said are named together.
std::string list(const std::vector<Seen>& seen, bool with_condition) {
  std::map<std::pair<std::string, std::string>, std::vector<Rank>> groups;
  for (const Seen& one : seen) {
    const std::string doing =
        with_condition && one.state.condition != Condition::alive
            ? fmt::format("{}; last seen {}", word(one.state.condition), one.state.activity)
            : one.state.activity;
    groups[{one.host, doing}].push_back(one.state.rank);
  }
  std::vector<std::string> parts;
  for (const auto& [what, ranks] : groups)
    parts.push_back(fmt::format("{} on {} ({})", ranks_text(ranks), what.first, what.second));
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Those that are farthest behind, if not all are equally far.
std::vector<Seen> behind(const std::vector<Seen>& seen) {
  const auto beats = [](const Seen& one) { return one.state.beats; };
  if (seen.empty()) return {};
  const std::uint64_t least = beats(*std::ranges::min_element(seen, {}, beats));
  std::vector<Seen> last;
  std::ranges::copy_if(seen, std::back_inserter(last),
                       [&](const Seen& one) { return beats(one) == least; });
  return last.size() == seen.size() ? std::vector<Seen>() : last;
}

std::string silent_hosts(const std::vector<HostAnswer>& answers) {
  std::string text;
  for (const HostAnswer& answer : answers) {
    if (answer.answered) continue;
    text += fmt::format("{}{} on {} (the host does not answer)", text.empty() ? "" : ", ",
                        ranks_text(answer.ranks), answer.host);
  }
  return text;
}

/// "missing: ...; waiting: ...; ": of each part only what there is.
std::string who_waits_for_whom(const std::vector<HostAnswer>& answers) {
  std::vector<Seen> missing, waiting;
  for (const HostAnswer& answer : answers) {
    for (const RankState& state : answer.states)
      (state.condition == Condition::alive ? waiting : missing).push_back({state, answer.host});
  }
  std::string lost = silent_hosts(answers), text;
  if (!missing.empty()) lost += (lost.empty() ? "" : ", ") + list(missing, true);
  if (!lost.empty()) {
    text = "missing: " + lost + "; ";
  } else if (const auto last = behind(waiting); !last.empty()) {
    text = fmt::format("no rank is stopped or dead, behind the others: {}; ", list(last, false));
  } else {
    text = "no rank is stopped or dead, none is behind; ";
  }
  if (!waiting.empty()) text += fmt::format("waiting: {}; ", list(waiting, false));
  return text;
}

constexpr const char* kKept = "rows measured so far are kept";

}  // namespace

std::string hang_report(double seconds, const std::vector<HostAnswer>& answers) {
  return fmt::format(
      "no progress for {:.0f} s; {}see whether these processes and hosts live, or raise --timeout "
      "if the step needs longer; {}",
      seconds, who_waits_for_whom(answers), kKept);
}

std::string hang_report(const std::string& cause, const std::vector<HostAnswer>& answers) {
  return fmt::format("{}; {}{}", cause, who_waits_for_whom(answers), kKept);
}

}  // namespace weft
