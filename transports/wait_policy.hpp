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

/// When one wait gives up, and when it lets others have the core.
class WaitClock {
 public:
  explicit WaitClock(const WaitPolicy& policy) : policy_(policy) {}

  /// False when the deadline has passed. Else it may have yielded or slept.
  bool look() {
    const auto now = Clock::now();
    if (looks_++ == 0) start_ = now;
    if (now - start_ > policy_.timeout()) return false;
    if (policy_.oversubscribed()) {
      looks_ < kYields ? std::this_thread::yield() : std::this_thread::sleep_for(kSleep);
    } else if (now - start_ > kPolite) {
      std::this_thread::yield();
    }
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kYields = 64;  // oversubscribed: before a wait sleeps
  static constexpr std::chrono::microseconds kSleep{50};
  // A wait longer than this yields too: the peer may need this very core, for its own second
  // stream (overlap) or beside other work.
  static constexpr std::chrono::microseconds kPolite{50};

  const WaitPolicy& policy_;
  int looks_ = 0;
  Clock::time_point start_{};
};

/// Of one wait that looks at memory:
///   Patience patience(policy);
///   while (!reached()) if (!patience.pause()) give up;
class Patience {
 public:
  explicit Patience(const WaitPolicy& policy)
      : clock_(policy),
        spins_left_(policy.spins()),
        pauses_(policy.oversubscribed() ? 0 : kPauses) {}

  /// A short pause; false when the deadline has passed.
  bool pause() {
    if (spins_left_ > 0) {
      --spins_left_;
      pause_cpu();
      return true;
    }
    for (int i = 0; i < pauses_; ++i) pause_cpu();
    return clock_.look();
  }

 private:
  static constexpr int kPauses = 256;  // between looks at the clock

  WaitClock clock_;
  int spins_left_, pauses_;
};

/// Of one wait that asks a queue. That takes long enough by itself: a processor's pause (140 cycles
/// on some, microseconds on an emulated one) would only let the message wait.
///   PollingPatience patience(policy);
///   while (!reached within patience.polls() polls) if (!patience.lasts()) give up;
class PollingPatience {
 public:
  explicit PollingPatience(const WaitPolicy& policy)
      : clock_(policy),
        polls_(policy.oversubscribed() ? 1 : kPolls),
        left_(policy.spins() / polls_) {}

  /// With more ranks than cores somebody else needs the core after each.
  int polls() const { return polls_; }
  bool lasts() {
    if (left_-- > 0) return true;
    left_ = polls_ == 1 ? 0 : kPollsPerLook / polls_;
    return clock_.look();
  }

 private:
  static constexpr int kPolls = 16, kPollsPerLook = 1024;  // at the clock

  WaitClock clock_;
  int polls_, left_;
};

}  // namespace weft
