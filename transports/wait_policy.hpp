// How a rank waits for another: it spins, then yields, then sleeps, and gives up at a deadline.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

#include "transports/communicator.hpp"

namespace weft {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Of a session: the same for all its waits.
class WaitPolicy {
 public:
  explicit WaitPolicy(const SessionOptions& options)
      : timeout_(options.timeout),
        spins_(options.oversubscribed ? 0 : kSpins),
        oversubscribed_(options.oversubscribed) {}

  int spins() const { return spins_; }
  bool oversubscribed() const { return oversubscribed_; }
  std::chrono::duration<double> timeout() const { return timeout_; }

 private:
  static constexpr int kSpins = 4096;  // before a wait looks at the clock

  std::chrono::duration<double> timeout_;
  int spins_;
  bool oversubscribed_;
};

/// Of one wait:
///   Patience patience(policy);
///   while (!reached()) if (!patience.pause()) give up;
class Patience {
 public:
  /// `looks`: how often the caller looks between two pauses. Where it is more than once, looking
  /// takes long enough by itself, and a processor's pause (140 cycles on some, microseconds on an
  /// emulated one) would only let the message wait.
  explicit Patience(const WaitPolicy& policy, int looks = 1)
      : policy_(policy), looks_each_(looks), spins_left_(policy.spins() / looks) {}

  /// A short pause; false when the deadline has passed.
  bool pause() {
    if (spins_left_ > 0) {
      --spins_left_;
      if (looks_each_ == 1) pause_cpu();
      return true;
    }
    return pause_slowly();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPausesPerLook = 256;  // between looks at the clock
  static constexpr int kSpinsPerLook = 1024;
  static constexpr int kYields = 64;  // oversubscribed: before a wait sleeps
  static constexpr std::chrono::microseconds kSleep{50};
  // A wait longer than this yields too: the peer may need this very core, for its own second
  // stream (overlap) or beside other work.
  static constexpr std::chrono::microseconds kPolite{50};

  bool pause_slowly() {
    const auto now = Clock::now();
    if (looks_++ == 0) start_ = now;
    if (now - start_ > policy_.timeout()) return false;
    if (policy_.oversubscribed()) {
      looks_ < kYields ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
      return true;
    }
    if (looks_each_ > 1) spins_left_ = kSpinsPerLook / looks_each_;
    for (int i = 0; looks_each_ == 1 && i < kPausesPerLook; ++i) pause_cpu();
    if (now - start_ > kPolite) std::this_thread::yield();
    return true;
  }

  const WaitPolicy& policy_;
  int looks_each_;
  int spins_left_;
  int looks_ = 0;  // at the clock
  Clock::time_point start_{};
};

}  // namespace weft
