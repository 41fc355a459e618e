#include "bench/trace_writer.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "bench/trace_names.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kTail = "\n]}\n";
constexpr std::size_t kMostIterations = 3;
constexpr std::size_t kMostMessages = 30'000;

std::vector<std::string> names(const std::vector<std::string>& hosts) {
  std::vector<std::string> events;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const int process = process_of(static_cast<Rank>(rank));
    name_process(events, process, fmt::format("rank {} on {}", rank, hosts[rank]));
    name_thread(events, process, kComputeThread, "compute");
    name_thread(events, process, kCommThread, "comm");
    name_thread(events, process, kSentThread, "messages sent");
    name_thread(events, process, kReceivedThread, "messages received");
  }
  name_process(events, kRunProcess, "iterations");
  name_thread(events, kRunProcess, kComputeThread, "cells");
  return events;
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, const std::string& launch_id,
                         const std::string& provenance_json)
    : file_(path, OutputFile::Mode::replace) {
  const std::string head = fmt::format(
      R"({{"displayTimeUnit":"ns","otherData":{{"producer":"weft","launch_id":{},"provenance":{}}},"traceEvents":[)",
      json_text(launch_id), provenance_json);
  file_.append(file_.regular() ? head + std::string(kTail) : head);
  end_ = static_cast<Bytes>(head.size());
}

TraceWriter::~TraceWriter() {
  try {
    if (!file_.regular()) file_.append(kTail);
  } catch (const Error& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
  }
}

void TraceWriter::append(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& event : events) {
    text += first_ ? "\n" : ",\n";
    text += event;
    first_ = false;
  }
  if (text.empty()) return;
  if (file_.regular()) {
    file_.overwrite(end_, text + std::string(kTail), kTail);
  } else {
    file_.append(text);
  }
  end_ += static_cast<Bytes>(text.size());
}

void TraceWriter::add(const TracedCell& cell) {
  if (cell.iterations.empty()) return;
  if (!named_) {
    append(names(cell.hosts));
    zero_us_ = cell.iterations.front().begin_us;
    named_ = true;
  }
  const TraceEvents events(cell, zero_us_, next_id_);
  append(events.texts());
  next_id_ = events.next_id();
}

std::size_t iterations_to_trace(const std::vector<InstrumentedIteration>& iterations) {
  std::size_t count = 0, messages = 0;
  for (const InstrumentedIteration& iteration : iterations) {
    messages += iteration.messages.size();
    if (count == kMostIterations || (count > 0 && messages > kMostMessages)) break;
    ++count;
  }
  return count;
}

}  // namespace weft
