// Ends a run that has stopped making progress, whatever it waits in, and one that is asked to end
// by a signal: no hang, and the files get their last word.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "patterns/types.hpp"

namespace weft {

/// A thread that watches one rank. `expired` is called, on that thread, when beat() was not called
/// for `seconds`; it gets the time. `interrupted` is called when SIGINT, SIGTERM or SIGHUP came, or
/// when the process that started this one is gone; it gets the signal, or kLauncherGone. Each must
/// end the process. `pulse` is called several times a second with the number of beats, as a sign of
/// life for others. One watchdog a process: while it lives, these signals are its own.
class Watchdog {
 public:
  static constexpr int kLauncherGone = 0;

  Watchdog(
      double seconds, std::function<void(double)> expired, std::function<void(int)> interrupted,
      std::function<void(std::uint64_t)> pulse = [](std::uint64_t) {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Progress was made; for the thread that does the work alone. Called inside timed iterations:
  /// two plain instructions, where a locked one would wait for the stores of the message before it.
  void beat() {
    beats_.store(beats_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  void watch();

  double seconds_;
  std::function<void(double)> expired_;
  std::function<void(int)> interrupted_;
  std::function<void(std::uint64_t)> pulse_;
  std::atomic<std::uint64_t> beats_{0};
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weft
