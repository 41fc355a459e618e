// Other load while a cell is measured: what else ran on the cores, what the hypervisor took, what a
// CPU quota held back. Noisy cells are flagged and repeated, never dropped.
#pragma once

#include <string>

#include "bench/machine_load.hpp"
#include "transports/bootstrap.hpp"

namespace weft {

/// While cells were measured against each other; worst host. NaN: unknown, or the time was too
/// short for the system's counters.
struct Noise : LoadShares {
  /// More than 5% of the usable CPU time went to others, more than 2% to the hypervisor, or a quota
  /// held a rank back.
  bool noisy() const;
  /// "quiet", or what was too much: "load+steal+throttled". "unknown" where nothing could be read.
  std::string text() const;
  /// For the quietest of several attempts.
  double badness() const;
};

/// Whether a cell is measured once more: where it was noisy, up to three times, while no more than
/// half of the `budget_us` that was meant for it is spent.
bool worth_another_attempt(const Noise& noise, int attempts, double spent_us, double budget_us);

/// Watches one interval at a time.
class NoiseMeter {
 public:
  /// Collective.
  explicit NoiseMeter(Bootstrap& bootstrap) : bootstrap_(bootstrap), meter_(bootstrap) {}
  void start() { meter_.start(); }
  /// Collective: since start(), the same on every rank.
  Noise stop();

 private:
  Bootstrap& bootstrap_;
  LoadMeter meter_;
};

}  // namespace weft
