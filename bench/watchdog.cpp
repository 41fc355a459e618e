#include "bench/watchdog.hpp"

#include <algorithm>
#include <chrono>

namespace weft {

Watchdog::Watchdog(double seconds, std::function<void(double)> expired)
    : seconds_(seconds), expired_(std::move(expired)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void Watchdog::watch() {
  using clock = std::chrono::steady_clock;
  const auto period = std::chrono::duration<double>(std::clamp(seconds_ / 10, 0.01, 1.0));
  std::uint64_t seen = beats_.load(std::memory_order_relaxed);
  auto since = clock::now();
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, period, [this] { return stopping_; })) {
    const std::uint64_t beats = beats_.load(std::memory_order_relaxed);
    if (beats != seen) {
      seen = beats;
      since = clock::now();
    }
    const double waited = std::chrono::duration<double>(clock::now() - since).count();
    if (waited > seconds_) return expired_(waited);
  }
}

}  // namespace weft
