#include "bench/pair_trial.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "bench/clock_sync.hpp"

namespace weft {
namespace {

constexpr std::size_t kReasonBytes = 16;

/// The fixed part of a packed result.
struct Header {
  Rank from, to;
  Summary summary;
  double first_us;
  Bytes posted;
  std::int64_t iterations;
  char stop_reason[kReasonBytes];
  std::uint32_t why_bytes, samples;
};

double duration(const std::vector<double>& times) { return times.back() - times.front(); }

bool receives(PairTest test, bool begins) { return test != PairTest::bandwidth || !begins; }

}  // namespace

std::vector<std::byte> PairResult::packed(bool with_samples) const {
  Header header{};
  header.from = from;
  header.to = to;
  header.summary = summary;
  header.first_us = first_us;
  header.posted = posted;
  header.iterations = iterations;
  std::strncpy(header.stop_reason, stop_reason.c_str(), kReasonBytes - 1);
  header.why_bytes = static_cast<std::uint32_t>(why.size());
  header.samples = with_samples ? static_cast<std::uint32_t>(samples.size()) : 0;
  const std::size_t sample_bytes = header.samples * sizeof(RowWriter::Sample);
  std::vector<std::byte> bytes(sizeof header + why.size() + sample_bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, why.data(), why.size());
  if (sample_bytes > 0) {
    std::memcpy(bytes.data() + sizeof header + why.size(), samples.data(), sample_bytes);
  }
  return bytes;
}

PairResult PairResult::unpacked(const std::vector<std::byte>& bytes) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  PairResult result;
  result.from = header.from;
  result.to = header.to;
  result.summary = header.summary;
  result.first_us = header.first_us;
  result.posted = header.posted;
  result.iterations = header.iterations;
  result.stop_reason = header.stop_reason;
  const std::byte* rest = bytes.data() + sizeof header;
  result.why.assign(reinterpret_cast<const char*>(rest), header.why_bytes);
  result.samples.resize(header.samples);
  if (header.samples > 0) {
    std::memcpy(result.samples.data(), rest + header.why_bytes,
                header.samples * sizeof(RowWriter::Sample));
  }
  return result;
}

PairTrial::PairTrial(Bootstrap& bootstrap, Session& session, PairBuffers& buffers, PairLink& link,
                     const StoppingRule& rule, TickClock& clock, Watchdog& watchdog)
    : bootstrap_(bootstrap),
      session_(session),
      buffers_(buffers),
      link_(link),
      rule_(rule),
      clock_(clock),
      watchdog_(watchdog) {
  session_.recorder().enable(false);
}

[[gnu::hot]] void PairTrial::iterate(PairTest test, Rank peer, bool begins) {
  link_.iterate(test, peer, turn_, begins);
  if (++turn_ == link_.turns(test)) turn_ = 0;
  ++iterations_;
  watchdog_.beat();
}

void PairTrial::close(PairTest test, Rank peer, bool begins) {
  link_.close(test, peer, turn_, begins);
  if (test == PairTest::latency) ++iterations_;
}

bool PairTrial::agree(Rank peer, bool mine) {
  bootstrap_.send(peer, mine ? 1 : 0);
  return bootstrap_.receive(peer) != 0 && mine;
}

// All buffers once, from poisoned memory; what one iteration posts is looked at on the way.
std::string PairTrial::verify(PairTest test, Rank peer, bool begins, PairResult& result) {
  const Rank me = bootstrap_.rank();
  buffers_.fill(me, peer);
  buffers_.poison();
  agree(peer, true);  // nobody writes into memory that is poisoned later
  turn_ = 0;
  link_.open(test, peer, turn_, begins);
  FlowRecorder& recorder = session_.recorder();
  recorder.clear();
  recorder.enable(true);
  iterate(test, peer, begins);
  if (!session_.flow_source().empty()) {
    result.posted = recorder.seal().bytes(MessageKind::payload);
  }
  recorder.enable(false);
  recorder.clear();
  while (turn_ != 0) iterate(test, peer, begins);
  close(test, peer, begins);
  std::string why;
  for (int set = 0; set < buffers_.shape().sets && receives(test, begins); ++set) {
    if (why.empty()) why = buffers_.check(set, peer, me);
  }
  return why;
}

// The first iteration of a block waits for a peer that has just been told of it: not timed. One
// reading is the end of a sample and the start of the next: whatever this rank does in between, the
// peer may still be busy with what went before.
[[gnu::hot]] std::vector<double> PairTrial::run_block(PairTest test, Rank peer, int iterations) {
  marks_.resize(static_cast<std::size_t>(iterations) + 1);
  bootstrap_.send(peer, iterations);
  link_.open(test, peer, turn_, true);
  iterate(test, peer, true);
  clock_.anchor();
  marks_.front() = clock_.mark();
  for (std::uint64_t& mark : std::span(marks_).subspan(1)) {
    iterate(test, peer, true);
    mark = clock_.mark();
  }
  close(test, peer, true);
  std::vector<double> times;
  times.reserve(marks_.size());
  for (const std::uint64_t mark : marks_) times.push_back(clock_.us_of(mark));
  return times;
}

void PairTrial::time(PairTest test, Rank peer, PairResult& result) {
  const double share = test == PairTest::latency ? 0.5 : 1;
  const double zero_us = monotonic_us();
  const std::vector<double> first = run_block(test, peer, 1);
  result.first_us = share * duration(first);
  const int warm_up = std::max(1, block_size(duration(first), rule_, 0) / 4);
  double period_us = duration(run_block(test, peer, warm_up)) / warm_up, spent_us = 0;
  SampleStride stride;
  std::int64_t done = 0;
  std::vector<double> samples;
  while (result.stop_reason.empty()) {
    const int size = block_size(period_us, rule_, spent_us);
    const std::vector<double> times = run_block(test, peer, size);
    for (std::size_t i = 0; i + 1 < times.size(); ++i, ++done) {
      if (!stride.keeps(done)) continue;
      const double start = times[i], end = times[i + 1];
      samples.push_back(share * (end - start));
      result.samples.push_back({done, bootstrap_.rank(), start - zero_us, end - zero_us, true, 1});
    }
    period_us = duration(times) / size;
    spent_us += duration(times);
    if (stride.widen(samples.size(), rule_, spent_us)) {
      keep_every_second(samples);
      keep_every_second(result.samples);
    }
    if (!may_stop(samples.size(), rule_, spent_us)) continue;
    result.summary = summarise(samples, effective_samples(samples));
    result.stop_reason = stop_reason(result.summary, rule_, spent_us);
  }
  bootstrap_.send(peer, 0);
}

PairResult PairTrial::begin(PairTest test, Rank peer) {
  PairResult result;
  result.from = bootstrap_.rank();
  result.to = peer;
  result.why = verify(test, peer, true, result);
  if (agree(peer, result.why.empty())) time(test, peer, result);
  result.iterations = iterations_;
  return result;
}

PairResult PairTrial::answer(PairTest test, Rank peer) {
  PairResult result;
  result.from = peer;
  result.to = bootstrap_.rank();
  result.why = verify(test, peer, false, result);
  if (!agree(peer, result.why.empty())) return result;
  while (const int iterations = static_cast<int>(bootstrap_.receive(peer))) {
    link_.open(test, peer, turn_, false);
    for (int i = 0; i < iterations + 1; ++i) iterate(test, peer, false);
    close(test, peer, false);
  }
  return result;
}

}  // namespace weft
