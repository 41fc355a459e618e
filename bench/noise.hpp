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
