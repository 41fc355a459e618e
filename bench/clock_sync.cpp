#include "bench/clock_sync.hpp"

#include <algorithm>
#include <chrono>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr double kWidestMarginUs = 2000;
constexpr double kTolerableLateShare = 0.1;

// Enough for the slowest rank to leave the exchange that agrees on the instant: four times its
// median duration.
double exchange_margin(Bootstrap& bootstrap) {
  std::vector<double> durations;
  for (int i = 0; i < 15; ++i) {
    const double begin = monotonic_us();
    bootstrap.max(begin);
    durations.push_back(monotonic_us() - begin);
  }
  std::nth_element(durations.begin(), durations.begin() + 7, durations.end());
  return std::clamp(bootstrap.max(durations[7]) * 4, 5.0, 500.0);
}

}  // namespace

double monotonic_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

CommonStart::CommonStart(Bootstrap& bootstrap, bool oversubscribed)
    : bootstrap_(bootstrap),
      clock_(bootstrap.all(!oversubscribed && distinct_real_hosts(bootstrap.hosts()).size() == 1)),
      margin_us_(clock_ ? exchange_margin(bootstrap) : 0) {}

void CommonStart::adapt(int late, int starts) {
  if (!clock_ || late <= kTolerableLateShare * starts) return;
  margin_us_ *= 2;
  clock_ = margin_us_ <= kWidestMarginUs;
}

CommonStart::Start CommonStart::wait() {
  if (!clock_) {
    bootstrap_.barrier();
    return {monotonic_us(), false};
  }
  const double at = bootstrap_.max(monotonic_us()) + margin_us_;
  if (monotonic_us() > at) return {at, true};
  while (monotonic_us() < at) {
  }
  return {at, false};
}

}  // namespace weft
