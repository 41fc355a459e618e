// How far two processors of this machine are from each other now: the round trip of a cache line
// between threads bound to the first two that this process may use. On a virtual machine the
// figure changes with the place that the host gives its processors: what is measured in one state
// cannot be compared with what is measured in another.
//
//   core-distance       prints   round_trip_ns
//                                131.4
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 200, kTripsPerRound = 100;

struct alignas(128) Line {
  std::atomic<int> value{0};
};

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void wait_for(const Line& line, int value) {
  while (line.value.load(std::memory_order_acquire) != value) {
  }
}

double round_trip_ns(int here, int there) {
  Line call, answer;
  std::thread other([&] {
    bind_to(there);
    for (int i = 1; i <= kRounds * kTripsPerRound; ++i) {
      wait_for(call, i);
      answer.value.store(i, std::memory_order_release);
    }
  });
  bind_to(here);
  std::array<double, kRounds> times{};
  int trip = 0;
  for (double& time : times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTripsPerRound; ++i) {
      call.value.store(++trip, std::memory_order_release);
      wait_for(answer, trip);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    time = took.count() / kTripsPerRound;
  }
  other.join();
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  return times[kRounds / 2];
}

}  // namespace

int main() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) {
    std::fputs("core-distance: this process may use one processor only; two are needed\n", stderr);
    return 2;
  }
  std::printf("round_trip_ns\n%.1f\n", round_trip_ns(cpus[0], cpus[1]));
  return 0;
}
