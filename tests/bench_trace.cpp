// The trace: valid at every moment, ordered, its arrows matched.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/trace_writer.hpp"
#include "tests/bench_row_samples.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

/// A file of its own, gone at the end.
struct Trace {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("weft-trace-" + std::to_string(::getpid()) + ".json"))
                         .string();
  ~Trace() { std::filesystem::remove(path); }
  Json read() const { return Json::parse(slurp(path)); }
};

Message message(Rank source, Rank destination, double posted_us, double completed_us) {
  Message m{.source = source, .destination = destination, .bytes = 64, .dim = Dimension::tp};
  m.posted_us = posted_us;
  m.completed_us = completed_us;
  return m;
}

/// Two ranks; compute then a communication that waits for it.
struct Sample {
  std::vector<std::string> hosts{"h0", "h\"1"};
  std::vector<std::vector<TracedStep>> steps{
      {{"Y = XA", false, Dimension::none, 0, {}}, {"gather Y", true, Dimension::tp, 4096, {0}}},
      {{"Y = XA", false, Dimension::none, 0, {}}, {"gather Y", true, Dimension::tp, 4096, {0}}}};
  std::vector<InstrumentedIteration> iterations;

  Sample() {
    InstrumentedIteration& it = iterations.emplace_back();
    it.begin_us = 1e9;
    it.end_us = 1e9 + 100;
    for (int rank = 0; rank < 2; ++rank) {
      it.spans.push_back({{0, StreamRole::compute, 1e9 + 1, 1e9 + 40.0004},
                          {1, StreamRole::comm, 1e9 + 40.0006, 1e9 + 90}});
    }
    it.messages = {message(0, 1, 1e9 + 41, 1e9 + 60), message(1, 0, 1e9 + 42, 1e9 + 50),
                   message(0, 1, 1e9 + 55, 1e9 + 70)};  // beside the first: a thread of its own
  }
  TracedCell cell() const { return {"cell/1", hosts, steps, iterations}; }
};

std::vector<Json> of_phase(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

TEST(TraceWriter, IsADocumentBeforeAndAfterEachCell) {
  const Trace file;
  const Sample sample;
  TraceWriter trace(file.path, "launch", R"({"version":"1"})");
  EXPECT_TRUE(file.read()["traceEvents"].empty());
  trace.add(sample.cell());
  const auto once = file.read()["traceEvents"].size();
  trace.add(sample.cell());
  const Json twice = file.read();
  EXPECT_GT(once, 10u);
  EXPECT_GT(twice["traceEvents"].size(), once);
  EXPECT_EQ(twice["otherData"]["launch_id"], "launch");
  EXPECT_EQ(twice["otherData"]["provenance"]["version"], "1");
}

TEST(TraceWriter, EventsAreOrderedAndNoneIsNegative) {
  const Trace file;
  const Sample sample;
  TraceWriter(file.path, "launch", "{}").add(sample.cell());
  const Json document = file.read();
  double last = 0;
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] == "M") continue;
    EXPECT_GE(event["ts"].get<double>(), last);
    last = event["ts"];
    if (event["ph"] == "X") {
      EXPECT_GE(event["dur"].get<double>(), 0);
    }
  }
  EXPECT_GT(last, 0);
}

TEST(TraceWriter, NamesProcessesAndThreads) {
  const Trace file;
  const Sample sample;
  TraceWriter(file.path, "launch", "{}").add(sample.cell());
  std::map<std::string, int> processes, threads;
  for (const Json& event : of_phase(file.read(), "M")) {
    if (event["name"] == "process_name") processes[event["args"]["name"]] = event["pid"];
    if (event["name"] == "thread_name") ++threads[event["args"]["name"]];
  }
  EXPECT_TRUE(processes.contains("rank 0 on h0"));
  EXPECT_TRUE(processes.contains("rank 1 on h\"1"));
  EXPECT_EQ(threads["compute"], 2);
  EXPECT_EQ(threads["comm"], 2);
  EXPECT_EQ(threads["messages sent"], 2);
  EXPECT_EQ(threads["messages sent 2"], 1);
}

TEST(TraceWriter, StepsAndMessagesAreSlices) {
  const Trace file;
  const Sample sample;
  TraceWriter(file.path, "launch", "{}").add(sample.cell());
  std::map<std::string, int> names;
  for (const Json& event : of_phase(file.read(), "X")) {
    ++names[event["name"]];
    if (event["name"] != "gather Y") continue;
    EXPECT_EQ(event["args"]["dimension"], "tp");
    EXPECT_EQ(event["args"]["bytes"], 4096);
  }
  EXPECT_EQ(names["Y = XA"], 2);
  EXPECT_EQ(names["gather Y"], 2);
  EXPECT_EQ(names["to 1"], 2);
  EXPECT_EQ(names["from 1"], 1);
  EXPECT_EQ(names["cell/1"], 1);
}

TEST(TraceWriter, ArrowsHaveTwoEndsInsideSlices) {
  const Trace file;
  const Sample sample;
  TraceWriter trace(file.path, "launch", "{}");
  trace.add(sample.cell());
  trace.add(sample.cell());  // ids go on
  const Json document = file.read();
  std::map<int, std::vector<Json>> arrows;
  for (const char* phase : {"s", "f"}) {
    for (const Json& event : of_phase(document, phase)) arrows[event["id"]].push_back(event);
  }
  EXPECT_EQ(arrows.size(), 2u * (2 + 3));
  const auto slices = of_phase(document, "X");
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2u) << id;
    EXPECT_EQ(ends[0]["ph"], "s");
    EXPECT_EQ(ends[1]["ph"], "f");
    EXPECT_EQ(ends[1]["bp"], "e");
    EXPECT_LE(ends[0]["ts"].get<double>(), ends[1]["ts"].get<double>());
    for (const Json& end : ends) {
      EXPECT_TRUE(std::ranges::any_of(slices, [&](const Json& slice) {
        const double at = end["ts"], begin = slice["ts"], length = slice["dur"];
        return slice["pid"] == end["pid"] && slice["tid"] == end["tid"] && begin <= at &&
               at <= begin + length + 1e-9;
      })) << end;
    }
  }
}

TEST(TraceWriter, FewIterationsAndFewerOfManyMessages) {
  const InstrumentedIteration small = Sample().iterations.front();
  InstrumentedIteration large = small;
  large.messages.assign(40'000, small.messages.front());
  EXPECT_EQ(iterations_to_trace({}), 0u);
  EXPECT_EQ(iterations_to_trace({small, small}), 2u);
  EXPECT_EQ(iterations_to_trace({small, small, small, small}), 3u);
  EXPECT_EQ(iterations_to_trace({large, large}), 1u);
}

}  // namespace
}  // namespace weft
