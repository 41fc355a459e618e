// The whole measurement of what is compared with each other: cells of one case and phase.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "bench/clock_sync.hpp"
#include "bench/noise.hpp"
#include "bench/port_meter.hpp"
#include "bench/row_writer.hpp"
#include "bench/statistics.hpp"
#include "bench/stopping.hpp"

namespace weft {

struct Measurement {
  Summary summary;               // of max over ranks(end) - start, valid samples, us
  double first_us = 0;           // the very first iteration, before any warm-up
  int late = 0;                  // samples left out because a rank started late
  std::string_view sync;         // "clock" | "barrier"
  std::string_view stop_reason;  // "precision" | "max_time" | "iterations"
  double clock_residual_us = 0;  // of the clocks that starts and ends were read from
  double start_skew_us = 0;      // median over samples of (last rank's start - first rank's)
  int attempts = 1;              // noisy ones were repeated; this is the quietest
  Noise noise;
  /// Of the attempt that counts: what ports counted over its blocks, the same on every rank; and
  /// the iterations of that, which are more than samples (late ones, those in front of a block).
  std::vector<HostPorts> ports;
  std::int64_t port_iterations = 0;
  WorkPosted posted;  // over the same blocks, all ranks
  std::vector<RowWriter::Sample>
      raw;  // rank 0: every sample of every rank and attempt; times since the first start
};

/// Something to be timed. `iteration` is local work that ends when this rank's part is done;
/// `ended` is collective and called once, after a last untimed iteration and before any other's.
struct Contestant {
  std::function<void()> iteration;
  std::function<void()> ended{};
  /// What this rank posted since ever; local. Without it: not known.
  std::function<WorkPosted()> posted{};
  /// Before each start, not timed: whatever only this suite has to look up.
  std::function<void()> touch{};
};

/// What all measurements of a run share.
struct MeasureContext {
  Bootstrap& bootstrap;
  CommonStart& start;
  NoiseMeter& noise;
  std::uint64_t seed = 0;      // of the order of blocks; the same on all ranks
  PortMeter* ports = nullptr;  // read between blocks; null: not at all
};

/// Collective. Each contestant: the first iteration on its own, warm-up until two successive blocks
/// agree, then samples until the rule says stop. Blocks of samples alternate between the
/// contestants in an order shuffled anew each round, so that a machine that changes its speed
/// changes it for all of them; not sample by sample, which would have each run in the other's
/// caches. Every rank gets the same numbers and so takes the same decisions. A sample is the time
/// from the common start to the end of the slowest rank (sync=barrier: the slowest rank's own
/// start-to-end). Where other load was seen, all of them are measured again
/// (worth_another_attempt); the quietest attempt counts, all are in `raw`. Results in the order of
/// the contestants.
std::vector<Measurement> measure(const MeasureContext& context, const StoppingRule& rule,
                                 std::span<const Contestant> contestants);

}  // namespace weft
