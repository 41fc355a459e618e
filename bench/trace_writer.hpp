// The trace of --trace: Chrome's JSON format, which ui.perfetto.dev and chrome://tracing open. A
// process a rank; threads for its compute and comm streams and for the messages that it sends and
// receives; a slice a step and a message; arrows from sender to receiver, and from a step to the
// one of the other stream that waits for it. All times of one clock, since the first traced
// iteration.
//
//   TraceWriter trace("t.json", launch_id, provenance);
//   trace.add({id, hosts, steps_of_all_ranks, iterations});
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/instrument.hpp"
#include "bench/output_file.hpp"

namespace weft {

/// What the trace tells of a step.
struct TracedStep {
  std::string label;
  bool communicates = false;
  Dimension dim = Dimension::none;
  Bytes bytes = 0;         // logical, of a communication step
  std::vector<int> after;  // steps that it waits for
};

/// The steps of all ranks, by rank. Collective.
std::vector<std::vector<TracedStep>> gather_steps(const Execution& execution, Bootstrap& bootstrap);

struct TracedCell {
  std::string cell_id;
  const std::vector<std::string>& hosts;  // of each rank
  const std::vector<std::vector<TracedStep>>& steps;
  std::span<const InstrumentedIteration> iterations;
};

/// The events of one cell, ordered by time, each as a JSON object.
class TraceEvents {
 public:
  /// `zero_us`: what counts as 0; `next_id`: of arrows, the first that is free.
  TraceEvents(const TracedCell& cell, double zero_us, std::int64_t next_id);
  const std::vector<std::string>& texts() const { return texts_; }
  std::int64_t next_id() const { return next_id_; }

 private:
  struct Event {
    std::int64_t at_ns;
    int order;  // at one instant: slices, beginnings of arrows, ends of arrows
    std::string text;
  };
  std::int64_t ns(double us) const;
  void add(std::int64_t at_ns, int order, std::string text);
  void add_iteration(const TracedCell& cell, std::size_t index);
  void add_steps(Rank rank, const std::vector<TracedStep>& steps,
                 const std::vector<StepSpan>& spans);
  void add_messages(const std::vector<Message>& messages);
  void add_message(const Message& message);
  void name_lanes();
  void add_arrow(const char* kind, Rank from, int from_thread, std::int64_t from_ns, Rank to,
                 int to_thread, std::int64_t to_ns);

  double zero_us_;
  std::int64_t next_id_;
  std::vector<Event> events_;
  std::map<Rank, std::vector<std::int64_t>> sent_until_, received_until_;  // by lane
  std::vector<std::string> texts_;
};

/// The file is a complete document after each cell, so that a killed run leaves a readable trace (a
/// pipe is ended by the destructor). Throws Error(usage) where it cannot write.
class TraceWriter {
 public:
  TraceWriter(const std::string& path, const std::string& launch_id,
              const std::string& provenance_json);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;
  void add(const TracedCell& cell);

 private:
  void append(const std::vector<std::string>& events);

  OutputFile file_;
  Bytes end_ = 0;  // where the tail begins
  bool first_ = true, named_ = false;
  double zero_us_ = 0;
  std::int64_t next_id_ = 1;
};

/// Fewer of a cell's iterations where they have many messages: a viewer must still open the file.
std::size_t iterations_to_trace(const std::vector<InstrumentedIteration>& iterations);

}  // namespace weft
