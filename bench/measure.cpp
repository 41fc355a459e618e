#include "bench/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft {
namespace {

constexpr double kBlockUs =
    20e3;  // between two decisions: long against the exchange, short against a person's patience
constexpr int kLargestBlock = 500;
constexpr int kWarmUpBlocks = 8;
constexpr double kWarmUpAgreement = 0.05;

struct Timing {
  double start_us = 0, end_us = 0, late = 0;
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

Block run_block(Bootstrap& bootstrap, CommonStart& start, int iterations,
                const std::function<void()>& iteration) {
  std::vector<Timing> mine;
  mine.reserve(static_cast<std::size_t>(iterations));
  for (int i = 0; i < iterations; ++i) {
    const CommonStart::Start begun = start.wait();
    iteration();
    mine.push_back({begun.at_us, monotonic_us(), begun.late ? 1.0 : 0.0});
  }
  Block block;
  for (const auto& bytes : bootstrap.all_gather(std::as_bytes(std::span(mine)))) {
    auto& timings = block.emplace_back(bytes.size() / sizeof(Timing));
    std::memcpy(timings.data(), bytes.data(), bytes.size());
  }
  start.adapt(late_starts(block), iterations);
  return block;
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

double median_of_valid(std::vector<double> samples) {
  std::erase_if(samples, [](double v) { return std::isnan(v); });
  if (samples.empty()) return std::nan("");
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

int next_block(double typical_us) {
  return std::isnan(typical_us)
             ? 1
             : std::clamp(static_cast<int>(kBlockUs / std::max(typical_us, 0.01)), 1,
                          kLargestBlock);
}

// Stops when two successive blocks have medians within 5%, or after a few: the row's interval tells
// the rest.
double warm_up(Bootstrap& bootstrap, CommonStart& start, const StoppingRule& rule, double first_us,
               const std::function<void()>& iteration) {
  double last = std::nan(""), spent = first_us;
  for (int i = 0; i < kWarmUpBlocks && spent < rule.max_time_us; ++i) {
    const int size = std::max(1, next_block(std::isnan(last) ? first_us : last) / 4);
    const double median = median_of_valid(slowest(run_block(bootstrap, start, size, iteration)));
    spent += size * (std::isnan(median) ? first_us : median);
    if (std::abs(median - last) <= kWarmUpAgreement * last) return median;
    last = median;
  }
  return last;
}

bool precise(const Summary& summary, const StoppingRule& rule) {
  const double half_width = (summary.ci_high - summary.ci_low) / 2;
  return summary.n >= rule.min_samples && half_width <= rule.precision * summary.p50;
}

std::string_view stop(const Summary& summary, const StoppingRule& rule, double spent_us) {
  if (spent_us >= rule.min_time_us && precise(summary, rule)) return "precision";
  if (spent_us >= rule.max_time_us && summary.n >= 1) return "max_time";
  if (summary.n >= rule.max_samples) return "iterations";
  // Every start late: the clock cannot be agreed on here; end with what there is, which is nothing.
  if (spent_us >= 10 * rule.max_time_us) return "max_time";
  return "";
}

void keep_raw(std::vector<RowWriter::Sample>& raw, const Block& block, int first_iteration,
              double zero_us) {
  for (std::size_t rank = 0; rank < block.size(); ++rank) {
    for (std::size_t i = 0; i < block[rank].size(); ++i) {
      const Timing& t = block[rank][i];
      raw.push_back({first_iteration + static_cast<int>(i), static_cast<Rank>(rank),
                     t.start_us - zero_us, t.end_us - zero_us, t.late == 0});
    }
  }
}

}  // namespace

Measurement measure(Bootstrap& bootstrap, CommonStart& start, const StoppingRule& rule,
                    const std::function<void()>& iteration) {
  Measurement result;
  const Block first = run_block(bootstrap, start, 1, iteration);
  for (const auto& rank : first) {
    result.first_us = std::max(result.first_us, rank[0].end_us - rank[0].start_us);
  }
  const double zero_us = first.front().front().start_us;
  double typical = warm_up(bootstrap, start, rule, result.first_us, iteration);
  std::vector<double> valid;
  double spent = 0;
  int done = 0;
  while (result.stop_reason.empty()) {
    // No block may overshoot the time that is left by more than one iteration.
    const double left = std::max(rule.max_time_us - spent, 0.0);
    const int fitting =
        std::isnan(typical) ? 1 : static_cast<int>(left / std::max(typical, 0.01)) + 1;
    const Block block =
        run_block(bootstrap, start, std::min(next_block(typical), fitting), iteration);
    const std::vector<double> samples = slowest(block);
    for (double sample : samples) {
      std::isnan(sample) ? static_cast<void>(++result.late) : valid.push_back(sample);
    }
    spent = 0;
    for (double sample : valid) spent += sample;
    spent += result.late * (std::isnan(typical) ? result.first_us : typical);
    if (bootstrap.rank() == 0) keep_raw(result.raw, block, done, zero_us);
    done += static_cast<int>(samples.size());
    result.summary = summarise(valid);
    if (!valid.empty()) typical = result.summary.p50;
    result.stop_reason = stop(result.summary, rule, spent);
  }
  result.sync = start.name();
  return result;
}

}  // namespace weft
