#include "bench/instrument.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace weft {
namespace {

constexpr double kWorthUs = 25e3;  // two and a half of the widest windows
constexpr int kMost = 64;
constexpr int kSlowMost = 2;  // of iterations longer than that
constexpr std::int64_t kMostMessages = 400'000;

/// One rank's part of an iteration.
struct Part {
  double begin_us = 0, end_us = 0;
  std::vector<Message> messages;
  std::vector<StepSpan> spans;
};

Part run_one(Execution& execution, FlowRecorder& recorder, CommonStart& start, Phase phase,
             const std::function<double(double)>& to_reference) {
  recorder.clear();
  recorder.enable(true);
  Part part;
  start.wait();
  part.begin_us = to_reference(monotonic_us());
  part.spans = execution.iterate_traced(phase);
  part.end_us = to_reference(monotonic_us());
  recorder.enable(false);
  for (Message message : recorder.messages()) {
    if (message.kind != MessageKind::payload || message.bytes <= 0) continue;
    if (message.posted_us > 0) {
      message.posted_us = to_reference(message.posted_us);
      message.completed_us = std::max(message.posted_us, to_reference(message.completed_us));
    }
    part.messages.push_back(message);
  }
  for (StepSpan& span : part.spans) {
    span.begin_us = to_reference(span.begin_us);
    span.end_us = to_reference(span.end_us);
  }
  recorder.clear();
  return part;
}

template <class T>
std::vector<std::vector<T>> gather(Bootstrap& bootstrap, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> all;
  for (const auto& bytes : bootstrap.all_gather(std::as_bytes(std::span(mine)))) {
    auto& theirs = all.emplace_back(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
  }
  return all;
}

InstrumentedIteration joined(Bootstrap& bootstrap, const Part& part) {
  InstrumentedIteration iteration;
  iteration.begin_us = -bootstrap.max(-part.begin_us);
  iteration.end_us = bootstrap.max(part.end_us);
  for (auto& messages : gather(bootstrap, part.messages)) {
    iteration.messages.insert(iteration.messages.end(), messages.begin(), messages.end());
  }
  iteration.spans = gather(bootstrap, part.spans);
  return iteration;
}

}  // namespace

int iterations_to_instrument(double typical_us, std::int64_t messages) {
  if (!(typical_us > 0)) return 1;
  const int wanted = typical_us >= kWorthUs
                         ? kSlowMost
                         : std::clamp(static_cast<int>(std::ceil(kWorthUs / typical_us)), 1, kMost);
  const auto affordable = messages > 0 ? kMostMessages / messages : kMost;
  return static_cast<int>(std::clamp<std::int64_t>(affordable, 1, wanted));
}

std::vector<InstrumentedIteration> instrument(Execution& execution, Session& session,
                                              Bootstrap& bootstrap, CommonStart& start, Phase phase,
                                              int iterations,
                                              const std::function<double(double)>& to_reference,
                                              const std::function<void()>& progress) {
  std::vector<Part> mine;
  for (int i = 0; i < iterations; ++i) {
    mine.push_back(run_one(execution, session.recorder(), start, phase, to_reference));
    progress();
  }
  std::vector<InstrumentedIteration> all;
  for (const Part& part : mine) all.push_back(joined(bootstrap, part));
  return all;
}

}  // namespace weft
