#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "patterns/error.hpp"
#include "transports/bootstrap.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

using Gathered = std::vector<std::vector<std::byte>>;

/// Long enough for a slow test on a busy machine, short enough that a test whose rank died ends by
/// itself.
constexpr std::chrono::seconds kPatience{60};

/// What the threads share: one exchange at a time. A result is safe to read until the next exchange
/// ends, which needs the reader's own arrival.
class ThreadWorld {
 public:
  explicit ThreadWorld(std::size_t n) : pending_(n), arrived_(n, false) {}

  Gathered exchange(Rank rank, std::span<const std::byte> mine) {
    std::unique_lock lock(mutex_);
    const auto index = static_cast<std::size_t>(rank);
    pending_[index].assign(mine.begin(), mine.end());
    arrived_[index] = true;
    const std::uint64_t round = round_;
    if (++count_ == pending_.size()) {
      finish();
    } else if (!done_.wait_for(lock, kPatience, [&] { return round_ != round; })) {
      fail(ExitCode::timed_out,
           fmt::format("rank {} waited {} s for rank(s){} in an exchange of the thread bootstrap; "
                       "did that thread end?",
                       rank, kPatience.count(), missing()));
    }
    return result_;
  }

  void send(Rank from, Rank to, double value) {
    const std::lock_guard lock(mutex_);
    letters_[{from, to}].push_back(value);
    arrival_.notify_all();
  }

  double receive(Rank from, Rank to) {
    std::unique_lock lock(mutex_);
    std::deque<double>& letters = letters_[{from, to}];
    if (!arrival_.wait_for(lock, kPatience, [&] { return !letters.empty(); })) {
      fail(ExitCode::timed_out, fmt::format("rank {} waited {} s for a number from rank {}", to,
                                            kPatience.count(), from));
    }
    const double value = letters.front();
    letters.pop_front();
    return value;
  }

 private:
  void finish() {
    result_ = pending_;
    arrived_.assign(arrived_.size(), false);
    count_ = 0;
    ++round_;
    done_.notify_all();
  }

  std::string missing() const {
    std::string text;
    for (std::size_t r = 0; r < arrived_.size(); ++r) {
      if (!arrived_[r]) text += fmt::format(" {}", r);
    }
    return text;
  }

  std::mutex mutex_;
  std::condition_variable done_, arrival_;
  std::map<std::pair<Rank, Rank>, std::deque<double>> letters_;
  Gathered pending_, result_;
  std::vector<bool> arrived_;
  std::size_t count_ = 0;
  std::uint64_t round_ = 0;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadWorld> world, Rank rank, std::vector<std::string> hosts)
      : world_(std::move(world)), rank_(rank), hosts_(std::move(hosts)) {}

  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  Gathered all_gather(std::span<const std::byte> mine) override {
    return world_->exchange(rank_, mine);
  }
  void barrier() override { world_->exchange(rank_, {}); }
  void send(Rank to, double value) override { world_->send(rank_, to, value); }
  double receive(Rank from) override { return world_->receive(from, rank_); }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  bool in_process() const override { return true; }

 private:
  std::shared_ptr<ThreadWorld> world_;
  Rank rank_;
  std::vector<std::string> hosts_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> make_thread_bootstraps(int n, int ranks_per_host) {
  if (n < 1) fail_usage(fmt::format("a thread bootstrap of {} ranks; give 1 or more", n));
  const auto count = static_cast<std::size_t>(n);
  const auto hosts =
      with_virtual_hosts(std::vector<std::string>(count, "thread-host"), ranks_per_host);
  const auto world = std::make_shared<ThreadWorld>(count);
  std::vector<std::unique_ptr<Bootstrap>> all;
  for (Rank r = 0; r < n; ++r) all.push_back(std::make_unique<ThreadBootstrap>(world, r, hosts));
  return all;
}

}  // namespace weft
