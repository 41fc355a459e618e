#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

namespace weft {
namespace {

constexpr int kWarmUpBlocks = 8;
constexpr double kWarmUpAgreement = 0.05;
// A block of fewer iterations is long enough for the first to fill the caches at little cost.
constexpr int kShortBlock = 8;

struct Timing {
  double start_us = 0, begun_us = 0, end_us = 0, late = 0;
};

using Block = std::vector<std::vector<Timing>>;  // [rank][iteration]

// Iterations that some rank began late.
int late_starts(const Block& block) {
  int late = 0;
  for (std::size_t i = 0; i < block.front().size(); ++i) {
    late += std::ranges::any_of(block, [i](const auto& rank) { return rank[i].late != 0; });
  }
  return late;
}

// Reduced in this order: over ranks first (the slowest), then over iterations (by the caller). Late
// ones are NaN.
std::vector<double> slowest(const Block& block) {
  std::vector<double> samples(block.front().size(), 0.0);
  for (const std::vector<Timing>& rank : block) {
    for (std::size_t i = 0; i < rank.size(); ++i) {
      const double elapsed = rank[i].late != 0 ? std::nan("") : rank[i].end_us - rank[i].start_us;
      samples[i] = std::isnan(samples[i]) || std::isnan(elapsed) ? std::nan("")
                                                                 : std::max(samples[i], elapsed);
    }
  }
  return samples;
}

// Of each iteration: last rank's start - first rank's.
std::vector<double> start_skews(const Block& block) {
  std::vector<double> skews;
  for (std::size_t i = 0; i < block.front().size(); ++i) {
    double first = block.front()[i].begun_us, last = first;
    for (const auto& rank : block) {
      first = std::min(first, rank[i].begun_us);
      last = std::max(last, rank[i].begun_us);
    }
    skews.push_back(last - first);
  }
  return skews;
}

// From the first start to the last end: what agreeing on starts costs counts too, or a microsecond
// of work behind a barrier of a millisecond would take a minute to sample.
double wall_us(const Block& block) {
  double first = block.front().front().begun_us, last = first;
  for (const auto& rank : block) {
    first = std::min(first, rank.front().begun_us);
    last = std::max(last, rank.back().end_us);
  }
  return last - first;
}

std::vector<double> valid(std::vector<double> samples) {
  std::erase_if(samples, [](double v) { return std::isnan(v); });
  return samples;
}

double median_of_valid(std::vector<double> samples) {
  samples = valid(std::move(samples));
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

/// One contestant on its way to a Measurement.
class Race {
 public:
  Race(const MeasureContext& context, const StoppingRule& rule, const Contestant& contestant,
       bool alone)
      : context_(context), rule_(rule), contestant_(contestant), alone_(alone) {}

  void warm_up();
  void start_attempt();
  void run_one_block();
  /// What this rank's meter counted over the block, and over how many iterations.
  void add_ports(const std::vector<PortCounts>& block);
  bool attempt_ended() const { return !now_.stop_reason.empty(); }
  /// Keeps this attempt if it was quieter than those before.
  void end_attempt(const Noise& noise);
  double spent_us() const { return spent_us_; }
  Measurement finish();

 private:
  Block run_block(int iterations);
  void keep_raw(const Block& block);
  WorkPosted posted() const {
    return contestant_.posted && context_.ports ? contestant_.posted() : WorkPosted();
  }
  void take_samples(const Block& block);
  /// Every second sample of this attempt.
  void thin();

  const MeasureContext& context_;
  const StoppingRule& rule_;
  const Contestant& contestant_;
  bool alone_;
  Measurement now_, best_;
  std::vector<PortCounts> ports_now_, ports_best_;  // of this rank's host, where it reads them
  std::vector<RowWriter::Sample> raw_;              // of all attempts
  SampleStride stride_;
  std::vector<double> samples_, skews_;  // of this attempt; late ones are NaN
  double period_us_ = 0;                 // wall time from start to start
  double first_us_ = 0, zero_us_ = 0, spent_us_ = 0;
  std::int64_t done_ = 0, attempt_began_ = 0;
  int attempts_ = 0;
};

Block Race::run_block(int iterations) {
  std::vector<Timing> mine;
  mine.reserve(static_cast<std::size_t>(iterations));
  CommonStart& start = context_.start;
  for (int i = 0; i < iterations; ++i) {
    if (contestant_.touch) contestant_.touch();
    const CommonStart::Start begun = start.wait();
    contestant_.iteration();
    mine.push_back({begun.at_us, begun.begun_us, start.now_us(), begun.late ? 1.0 : 0.0});
  }
  Block block;
  for (const auto& bytes : context_.bootstrap.all_gather(std::as_bytes(std::span(mine)))) {
    auto& timings = block.emplace_back(bytes.size() / sizeof(Timing));
    std::memcpy(timings.data(), bytes.data(), bytes.size());
  }
  start.adapt(late_starts(block), iterations);
  return block;
}

// Stops when two successive blocks have medians within 5%, or after a few: the row's interval tells
// the rest.
void Race::warm_up() {
  const Block first = run_block(1);
  for (const auto& rank : first) {
    first_us_ = std::max(first_us_, rank[0].end_us - rank[0].start_us);
  }
  zero_us_ = first.front().front().start_us;
  double last = std::nan(""), spent = wall_us(first);
  period_us_ = spent;
  for (int i = 0; i < kWarmUpBlocks && spent < rule_.max_time_us; ++i) {
    const int size = std::max(1, block_size(period_us_) / 4);
    const Block block = run_block(size);
    const double median = median_of_valid(slowest(block));
    period_us_ = wall_us(block) / size;
    spent += wall_us(block);
    const bool steady = std::abs(median - last) <= kWarmUpAgreement * last;
    last = median;
    if (steady) break;
  }
}

void Race::keep_raw(const Block& block) {
  for (std::size_t rank = 0; rank < block.size(); ++rank) {
    for (std::size_t i = 0; i < block[rank].size(); ++i) {
      const Timing& t = block[rank][i];
      const std::int64_t iteration = done_ + static_cast<std::int64_t>(i);
      if (!stride_.keeps(iteration - attempt_began_)) continue;
      raw_.push_back({iteration, static_cast<Rank>(rank), t.start_us - zero_us_,
                      t.end_us - zero_us_, t.late == 0, attempts_});
    }
  }
}

void Race::thin() {
  keep_every_second(samples_);
  keep_every_second(skews_);
  std::erase_if(raw_, [this](const RowWriter::Sample& sample) {
    return sample.attempt == attempts_ && !stride_.keeps(sample.iteration - attempt_began_);
  });
}

void Race::take_samples(const Block& block) {
  const std::vector<double> samples = slowest(block), skews = start_skews(block);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!stride_.keeps(done_ - attempt_began_ + static_cast<std::int64_t>(i))) continue;
    samples_.push_back(samples[i]);
    skews_.push_back(skews[i]);
  }
  if (context_.bootstrap.rank() == 0) keep_raw(block);
  done_ += static_cast<std::int64_t>(samples.size());
  spent_us_ += wall_us(block);
  period_us_ = wall_us(block) / static_cast<double>(samples.size());
}

void Race::run_one_block() {
  const int size = block_size(period_us_, rule_, spent_us_);
  const WorkPosted before = posted();
  // Another contestant left its data in the caches; that is not this one's steady state.
  if (!alone_ && size >= kShortBlock) {
    if (context_.ports) context_.bootstrap.barrier();  // another rank may still be reading them
    contestant_.iteration();
    ++now_.port_iterations;
  }
  take_samples(run_block(size));
  now_.port_iterations += size;
  now_.posted += posted() - before;
  if (stride_.widen(samples_.size(), rule_, spent_us_)) thin();
  if (!may_stop(samples_.size(), rule_, spent_us_)) return;
  const std::vector<double> on_time = valid(samples_);
  now_.late = static_cast<int>(samples_.size() - on_time.size());
  now_.summary = summarise(on_time, effective_samples(on_time));
  now_.stop_reason = stop_reason(now_.summary, rule_, spent_us_);
}

void Race::start_attempt() {
  ++attempts_;
  now_ = Measurement();
  ports_now_.clear();
  samples_.clear();
  skews_.clear();
  stride_ = SampleStride();
  attempt_began_ = done_;
  spent_us_ = 0;
}

void Race::end_attempt(const Noise& noise) {
  now_.noise = noise;
  now_.sync = context_.start.name();
  now_.clock_residual_us = context_.start.residual_us();
  now_.start_skew_us = median_of_valid(skews_);
  if (attempts_ > 1 && noise.badness() >= best_.noise.badness()) return;
  best_ = std::move(now_);
  ports_best_ = std::move(ports_now_);
}

// A block ends with an exchange of times, after which no rank has anything under way: its end is
// also where the next one begins, whichever contestant's that is.
void Race::add_ports(const std::vector<PortCounts>& block) { add_interval(ports_now_, block); }

Measurement Race::finish() {
  if (contestant_.ended) {
    contestant_.iteration();  // the last to write its buffers
    contestant_.ended();
  }
  if (context_.ports) {
    best_.ports = gather_ports(context_.bootstrap, ports_best_);
    best_.posted = gather_work(context_.bootstrap, best_.posted);
  }
  best_.first_us = first_us_;
  best_.attempts = attempts_;
  best_.raw = std::move(raw_);
  return std::move(best_);
}

using Races = std::vector<std::unique_ptr<Race>>;

void run_attempt(const Races& races, std::mt19937_64& shuffle, PortMeter* ports) {
  std::vector<Race*> running;
  for (const auto& race : races) {
    race->start_attempt();
    running.push_back(race.get());
  }
  if (ports) ports->start();
  while (!running.empty()) {
    std::ranges::shuffle(running, shuffle);
    for (Race* race : running) {
      race->run_one_block();
      if (ports) race->add_ports(ports->lap());
    }
    std::erase_if(running, [](const Race* race) { return race->attempt_ended(); });
  }
}

}  // namespace

std::vector<Measurement> measure(const MeasureContext& context, const StoppingRule& rule,
                                 std::span<const Contestant> contestants) {
  Races races;
  for (const Contestant& contestant : contestants) {
    races.push_back(std::make_unique<Race>(context, rule, contestant, contestants.size() == 1));
    races.back()->warm_up();
  }
  std::mt19937_64 shuffle(context.seed);
  const double budget_us = rule.max_time_us * static_cast<double>(races.size());
  double spent_us = 0;
  Noise noise;
  for (int attempts = 0;
       attempts == 0 || worth_another_attempt(noise, attempts, spent_us, budget_us); ++attempts) {
    context.noise.start();
    run_attempt(races, shuffle, context.ports);
    noise = context.noise.stop();
    for (const auto& race : races) {
      race->end_attempt(noise);
      spent_us += race->spent_us();
    }
  }
  std::vector<Measurement> results;
  for (const auto& race : races) results.push_back(race->finish());
  return results;
}

}  // namespace weft
