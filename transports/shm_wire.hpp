// The shm wire with its settings. Private to shm*.cpp and their tests.
#pragma once

#include <optional>

#include "transports/shm_thresholds.hpp"
#include "transports/transport.hpp"

namespace weft {

struct ShmSettings {
  ShmThresholds thresholds = kShmThresholds;
  /// The same moves without any flag, but for iterations that are recorded: the machine's limit.
  bool bare = false;
  /// With `bare`: several collectives all the same. Tests of missing flags want that.
  bool many = false;
  /// Set: every piece is copied so; else the thresholds decide.
  std::optional<bool> streaming{};
};

/// Throws Error(usage) where the ranks cannot share memory.
std::unique_ptr<Transport> make_shm_wire(Bootstrap& bootstrap, Arena& arena,
                                         const SessionOptions& options,
                                         const ShmSettings& settings);

}  // namespace weft
