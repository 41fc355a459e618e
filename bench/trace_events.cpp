// The events of one cell of a trace.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "bench/trace_names.hpp"
#include "bench/trace_writer.hpp"

namespace weft {
namespace {

enum Order : int { kSlice, kArrowBegins, kArrowEnds };

std::string time_text(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string slice(const std::string& name, std::string_view category, int process, int thread,
                  std::int64_t begin_ns, std::int64_t end_ns, const std::string& arguments) {
  return fmt::format(
      R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      json_text(name), category, process, thread, time_text(begin_ns), time_text(end_ns - begin_ns),
      arguments);
}

std::string arrow_end(char phase, std::string_view kind, std::int64_t id, int process, int thread,
                      std::int64_t at_ns) {
  return fmt::format(R"({{"ph":"{}","name":"{}","cat":"{}","id":{},"pid":{},"tid":{},"ts":{}{}}})",
                     phase, kind, kind, id, process, thread, time_text(at_ns),
                     phase == 'f' ? R"(,"bp":"e")" : "");
}

/// The first lane that is free at `begin_ns`, taken until `end_ns`.
int take_lane(std::vector<std::int64_t>& busy_until, std::int64_t begin_ns, std::int64_t end_ns) {
  const auto free =
      std::ranges::find_if(busy_until, [&](std::int64_t until) { return until <= begin_ns; });
  const auto lane = free - busy_until.begin();
  if (free == busy_until.end()) busy_until.push_back(0);
  busy_until[static_cast<std::size_t>(lane)] = end_ns;
  return static_cast<int>(lane);
}

Bytes logical_bytes_of(const Operation& op) {
  Bytes bytes = std::max(op.in.bytes(), op.out.bytes());
  for (const PointToPoint& member : op.members) bytes += member.send ? member.data.bytes() : 0;
  return bytes;
}

/// The communication step at each index of the iteration; null for a compute step.
std::vector<const BoundCommunication*> communications_by_step(const Execution& execution) {
  std::vector<const BoundCommunication*> found;
  auto next = execution.communications().begin();
  for (int step = 0; step < execution.step_count(); ++step) {
    found.push_back(execution.step_communicates(step) ? &*next++ : nullptr);
  }
  return found;
}

}  // namespace

std::vector<std::vector<TracedStep>> gather_steps(const Execution& execution,
                                                  Bootstrap& bootstrap) {
  using nlohmann::json;
  json mine = json::array();
  const auto communications = communications_by_step(execution);
  for (int step = 0; step < execution.step_count(); ++step) {
    const BoundCommunication* comm = communications[static_cast<std::size_t>(step)];
    mine.push_back({execution.step_label(step), comm != nullptr,
                    static_cast<int>(comm ? comm->comm->dim() : Dimension::none),
                    comm ? logical_bytes_of(comm->operation) : 0, execution.step_after(step)});
  }
  std::vector<std::vector<TracedStep>> all;
  for (const std::string& text : bootstrap.all_gather(mine.dump())) {
    auto& steps = all.emplace_back();
    for (const json& step : json::parse(text)) {
      steps.push_back({step[0], step[1], static_cast<Dimension>(step[2].get<int>()), step[3],
                       step[4].get<std::vector<int>>()});
    }
  }
  return all;
}

TraceEvents::TraceEvents(const TracedCell& cell, double zero_us, std::int64_t next_id)
    : zero_us_(zero_us), next_id_(next_id) {
  for (std::size_t i = 0; i < cell.iterations.size(); ++i) {
    add_iteration(cell, i);
    const InstrumentedIteration& iteration = cell.iterations[i];
    for (std::size_t rank = 0; rank < iteration.spans.size(); ++rank) {
      add_steps(static_cast<Rank>(rank), cell.steps[rank], iteration.spans[rank]);
    }
    add_messages(iteration.messages);
  }
  std::ranges::stable_sort(events_, {},
                           [](const Event& event) { return std::tuple(event.at_ns, event.order); });
  name_lanes();
  for (Event& event : events_) texts_.push_back(std::move(event.text));
  events_.clear();
}

std::int64_t TraceEvents::ns(double us) const {
  return std::max<std::int64_t>(0, std::llround((us - zero_us_) * 1e3));
}

void TraceEvents::add(std::int64_t at_ns, int order, std::string text) {
  events_.push_back({at_ns, order, std::move(text)});
}

void TraceEvents::add_iteration(const TracedCell& cell, std::size_t index) {
  const InstrumentedIteration& iteration = cell.iterations[index];
  const std::int64_t begin = ns(iteration.begin_us);
  add(begin, kSlice,
      slice(cell.cell_id, "iteration", kRunProcess, kComputeThread, begin,
            std::max(begin, ns(iteration.end_us)),
            fmt::format(R"("iteration":{},"messages":{})", index, iteration.messages.size())));
}

void TraceEvents::add_arrow(const char* kind, Rank from, int from_thread, std::int64_t from_ns,
                            Rank to, int to_thread, std::int64_t to_ns) {
  const std::int64_t id = next_id_++;
  add(from_ns, kArrowBegins, arrow_end('s', kind, id, process_of(from), from_thread, from_ns));
  add(to_ns, kArrowEnds, arrow_end('f', kind, id, process_of(to), to_thread, to_ns));
}

void TraceEvents::add_steps(Rank rank, const std::vector<TracedStep>& steps,
                            const std::vector<StepSpan>& spans) {
  std::map<int, const StepSpan*> ran;
  for (const StepSpan& span : spans) ran[span.step] = &span;
  const auto thread = [](const StepSpan& span) {
    return span.stream == StreamRole::comm ? kCommThread : kComputeThread;
  };
  for (const auto& [index, span] : ran) {
    const TracedStep& step = steps.at(static_cast<std::size_t>(index));
    const std::int64_t begin = ns(span->begin_us), end = std::max(begin, ns(span->end_us));
    const std::string arguments = step.communicates
                                      ? fmt::format(R"("step":{},"dimension":"{}","bytes":{})",
                                                    index, to_string(step.dim), step.bytes)
                                      : fmt::format(R"("step":{})", index);
    add(begin, kSlice,
        slice(step.label, step.communicates ? to_string(step.dim) : "compute", process_of(rank),
              thread(*span), begin, end, arguments));
    for (int before : step.after) {
      const auto found = ran.find(before);
      if (found == ran.end()) continue;  // another phase's
      // Inside the slice, for an arrow belongs to the slice that its end lies in.
      const std::int64_t from_begin = ns(found->second->begin_us);
      const std::int64_t from = std::max(from_begin, ns(found->second->end_us) - 1);
      add_arrow("dependency", rank, thread(*found->second), std::min(from, begin), rank,
                thread(*span), begin);
    }
  }
}

void TraceEvents::add_messages(const std::vector<Message>& messages) {
  std::vector<const Message*> ordered;
  for (const Message& message : messages) {
    if (message.posted_us > 0) ordered.push_back(&message);
  }
  std::ranges::stable_sort(ordered, {}, [](const Message* m) { return m->posted_us; });
  for (const Message* message : ordered) add_message(*message);
}

void TraceEvents::add_message(const Message& m) {
  const std::int64_t begin = ns(m.posted_us), end = std::max(begin, ns(m.completed_us));
  const int from = kSentThread + take_lane(sent_until_[m.source], begin, end);
  const int to = kReceivedThread + take_lane(received_until_[m.destination], begin, end);
  const std::string arguments = fmt::format(
      R"("bytes":{},"source":{},"destination":{},"channel":{},"dimension":"{}","network":"{}")",
      m.bytes, m.source, m.destination, m.channel, to_string(m.dim), to_string(m.network));
  add(begin, kSlice,
      slice(fmt::format("to {}", m.destination), "message", process_of(m.source), from, begin, end,
            arguments));
  add(begin, kSlice,
      slice(fmt::format("from {}", m.source), "message", process_of(m.destination), to, begin, end,
            arguments));
  add_arrow("message", m.source, from, begin, m.destination, to, std::max(begin, end - 1));
}

void TraceEvents::name_lanes() {
  const auto name = [&](const auto& lanes, int first, const char* what) {
    for (const auto& [rank, until] : lanes) {
      for (int lane = 1; lane < static_cast<int>(until.size()); ++lane) {
        name_thread(texts_, process_of(rank), first + lane, fmt::format("{} {}", what, lane + 1));
      }
    }
  };
  name(sent_until_, kSentThread, "messages sent");
  name(received_until_, kReceivedThread, "messages received");
}

}  // namespace weft
