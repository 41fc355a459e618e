// Ends a run that has stopped making progress, whatever it waits in: no hang.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "patterns/types.hpp"

namespace weft {

/// A thread that watches one rank. `expired` is called once, on that thread, when beat() was not
/// called for `seconds`; it gets the time and must end the process.
class Watchdog {
 public:
  Watchdog(double seconds, std::function<void(double)> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Progress was made. A relaxed increment: cheap enough for every iteration.
  void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch();

  double seconds_;
  std::function<void(double)> expired_;
  std::atomic<std::uint64_t> beats_{0};
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace weft
