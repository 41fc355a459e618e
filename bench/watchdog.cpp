#include "bench/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

namespace weft {
namespace {

constexpr double kLongestPeriod = 0.1;  // seconds until a signal is noticed

// A handler may do little more than this; the thread does the rest.
volatile std::sig_atomic_t last_signal = 0;

void handle_signals(void (*handler)(int)) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // nohup and background jobs have some of them ignored, and mean it.
    if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

}  // namespace

Watchdog::Watchdog(double seconds, std::function<void(double)> expired,
                   std::function<void(int)> interrupted, std::function<void(std::uint64_t)> pulse)
    : seconds_(seconds),
      expired_(std::move(expired)),
      interrupted_(std::move(interrupted)),
      pulse_(std::move(pulse)) {
  handle_signals([](int signal) { last_signal = signal; });
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
  handle_signals(SIG_DFL);
}

void Watchdog::watch() {
  using clock = std::chrono::steady_clock;
  const auto period =
      std::chrono::duration<double>(std::clamp(seconds_ / 10, 0.01, kLongestPeriod));
  std::uint64_t seen = beats_.load(std::memory_order_relaxed);
  auto since = clock::now();
  // A launcher that was killed ends nobody; whoever adopts its ranks is another process.
  const pid_t launcher = getppid();
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, period, [this] { return stopping_; })) {
    if (last_signal != 0) return interrupted_(last_signal);
    if (getppid() != launcher) return interrupted_(kLauncherGone);
    const std::uint64_t beats = beats_.load(std::memory_order_relaxed);
    pulse_(beats);
    if (beats != seen) {
      seen = beats;
      since = clock::now();
    }
    const double waited = std::chrono::duration<double>(clock::now() - since).count();
    if (waited > seconds_) return expired_(waited);
  }
}

}  // namespace weft
