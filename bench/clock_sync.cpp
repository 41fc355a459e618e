#include "bench/clock_sync.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

constexpr double kWidestMarginUs = 2000;
constexpr double kTolerableLateShare = 0.1;
constexpr int kExchanges = 25;           // of which the fastest counts
constexpr std::size_t kKeptPoints = 12;  // old ones know a drift that temperature has changed since
constexpr double kRefreshSeconds = 10;
constexpr double kSpanForDriftUs = 2e6;  // over less, the error of two points exceeds any drift

// Enough for the slowest rank to leave the exchange that agrees on the instant: four times its
// median duration.
double exchange_margin(Bootstrap& bootstrap) {
  std::vector<double> durations;
  for (int i = 0; i < 15; ++i) {
    const double begin = monotonic_us();
    bootstrap.max_spinning(begin);
    durations.push_back(monotonic_us() - begin);
  }
  std::nth_element(durations.begin(), durations.begin() + 7, durations.end());
  return std::clamp(bootstrap.max(durations[7]) * 4, 5.0, 500.0);
}

// The leader of the host that `rank` runs on.
Rank leader_of(const Bootstrap& bootstrap, const std::vector<Rank>& leaders) {
  const auto& hosts = bootstrap.hosts();
  const auto host = [&](Rank rank) { return real_host(hosts[static_cast<std::size_t>(rank)]); };
  if (std::ranges::find(leaders, bootstrap.rank()) != leaders.end()) return bootstrap.rank();
  for (Rank leader : leaders) {
    if (host(leader) == host(bootstrap.rank())) return leader;
  }
  return leaders.front();
}

}  // namespace

double monotonic_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

HostClocks::HostClocks(Bootstrap& bootstrap, std::vector<Rank> leaders, Clock clock)
    : bootstrap_(bootstrap),
      leaders_(std::move(leaders)),
      my_leader_(leader_of(bootstrap, leaders_)),
      clock_(std::move(clock)) {
  refresh();
}

// Rank 0's part: its clock before and after; the leader's reading lies between them.
HostClocks::Point HostClocks::exchange(Rank leader) {
  Point best{0, 0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kExchanges; ++i) {
    const double begin = clock_();
    bootstrap_.send(leader, begin);
    const double theirs = bootstrap_.receive(leader);
    const double end = clock_();
    const double error = (end - begin) / 2;
    if (error < best.error_us) best = {theirs, (begin + end) / 2 - theirs, error};
  }
  bootstrap_.send(leader, best.local_us);
  bootstrap_.send(leader, best.offset_us);
  bootstrap_.send(leader, best.error_us);
  return best;
}

HostClocks::Point HostClocks::answer() {
  for (int i = 0; i < kExchanges; ++i) {
    bootstrap_.receive(0);
    bootstrap_.send(0, clock_());
  }
  Point point;
  point.local_us = bootstrap_.receive(0);
  point.offset_us = bootstrap_.receive(0);
  point.error_us = bootstrap_.receive(0);
  return point;
}

void HostClocks::refresh() {
  refreshed_us_ = clock_();
  if (leaders_.size() < 2) return;
  Point mine{clock_(), 0, 0};
  for (std::size_t i = 1; i < leaders_.size(); ++i) {
    if (bootstrap_.rank() == 0) exchange(leaders_[i]);
    if (bootstrap_.rank() == leaders_[i]) mine = answer();
  }
  const auto all = bootstrap_.all_gather(std::as_bytes(std::span(&mine, 1)));
  const auto& told = all[static_cast<std::size_t>(my_leader_)];
  std::copy(told.begin(), told.end(), std::as_writable_bytes(std::span(&mine, 1)).begin());
  points_.push_back(mine);
  if (points_.size() > kKeptPoints) points_.erase(points_.begin());
  fit();
}

// offset(t) = offset + drift * (t - base), least squares over the kept points.
void HostClocks::fit() {
  base_us_ = points_.back().local_us;
  offset_us_ = points_.back().offset_us;
  drift_ = 0;
  const auto n = static_cast<double>(points_.size());
  if (base_us_ - points_.front().local_us > kSpanForDriftUs) {
    double t = 0, o = 0, tt = 0, to = 0;
    for (const Point& p : points_) {
      const double dt = p.local_us - base_us_, d = p.offset_us - points_.back().offset_us;
      t += dt;
      o += d;
      tt += dt * dt;
      to += dt * d;
    }
    drift_ = (n * to - t * o) / (n * tt - t * t);
    offset_us_ += (o - drift_ * t) / n;
  }
  double worst = 0;
  for (const Point& p : points_) {
    const double left = std::abs(offset_us_ + drift_ * (p.local_us - base_us_) - p.offset_us);
    worst = std::max(worst, left);
  }
  residual_us_ = bootstrap_.max(worst + points_.back().error_us);
}

void HostClocks::refresh_if_due() {
  if (leaders_.size() < 2) return;
  if (bootstrap_.max((clock_() - refreshed_us_) * 1e-6) >= kRefreshSeconds) refresh();
}

double HostClocks::to_reference(double local_us) const {
  return local_us + offset_us_ + drift_ * (local_us - base_us_);
}

double HostClocks::to_local(double reference_us) const {
  return base_us_ + (reference_us - base_us_ - offset_us_) / (1 + drift_);
}

CommonStart::CommonStart(Bootstrap& bootstrap, const HostClocks& clocks, bool oversubscribed)
    : bootstrap_(bootstrap),
      clocks_(clocks),
      ticks_([&clocks] { return clocks.now_us(); }),
      possible_(bootstrap.all(!oversubscribed)) {
  renew();
}

void CommonStart::renew() {
  if (!possible_ || clock_) return;
  clock_ = true;
  margin_us_ = exchange_margin(bootstrap_);
}

void CommonStart::adapt(int late, int starts) {
  if (!clock_ || late <= kTolerableLateShare * starts) return;
  margin_us_ *= 2;
  clock_ = margin_us_ <= kWidestMarginUs;
}

CommonStart::Start CommonStart::wait() {
  if (!clock_) {
    bootstrap_.barrier();
    const double begun = clocks_.to_reference(ticks_.anchor());
    return {begun, begun, false};
  }
  const double ready = clocks_.to_reference(ticks_.anchor());
  const double at = bootstrap_.max_spinning(ready) + margin_us_;
  const double local = clocks_.to_local(at);
  const bool late = ticks_.now_us() > local;
  return {at, clocks_.to_reference(ticks_.wait_until(local)), late};
}

}  // namespace weft
