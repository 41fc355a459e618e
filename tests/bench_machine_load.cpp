// The noise meter against files of known content, and against a process of known appetite.
#include "bench/machine_load.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

namespace weft {
namespace {

namespace fs = std::filesystem;

/// A small /proc and /sys in a folder of its own.
class MachineLoadFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weft-load-XXXXXX").string();
    root_ = mkdtemp(name.data());
    write("/proc/stat", stat(0, 0));
  }
  void TearDown() override { fs::remove_all(root_); }

  /// In place: a meter keeps its files open.
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  /// Two CPUs that were idle and stolen for so many ticks, and a third that is not ours.
  static std::string stat(int idle, int steal) {
    return fmt::format(
        "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 7 0 5 {} 0 0 1 {} 0 0\ncpu1 7 0 5 {} 0 0 1 {} 0 0\n"
        "cpu2 7 0 5 999 0 0 1 999 0 0\nintr 5 6 7\n",
        idle, steal, idle, steal);
  }
  void group_v1(const std::string& mounted, const std::string& path) const {
    write("/proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:" + path + "\n0::/\n");
    write("/proc/self/mountinfo",
          "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 20 0:27 " + mounted +
              " /sys/fs/cgroup/cpu rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct\n");
  }
  void group_v2(const std::string& path) const {
    write("/proc/self/cgroup", "0::" + path + "\n");
    write("/proc/self/mountinfo", "31 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  }

  std::string root_;
};

TEST_F(MachineLoadFiles, BusyIsWhatWasNeitherIdleNorStolen) {
  LoadMeter meter({0, 1}, true, root_);
  meter.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  write("/proc/stat", stat(3, 1));
  const MachineLoad load = meter.stop();
  const double tick = 1e6 / static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(load.cpus, 2);
  EXPECT_GE(load.wall_us, 100e3);
  EXPECT_DOUBLE_EQ(load.steal_us, 2 * tick);
  EXPECT_NEAR(load.busy_us, 2 * load.wall_us - 8 * tick, 1);
  EXPECT_DOUBLE_EQ(load.resolution_us, 2 * tick);
}

TEST_F(MachineLoadFiles, WhatCannotBeReadIsUnknown) {
  const auto interval = [this](std::vector<int> cpus, bool reads) {
    LoadMeter meter(std::move(cpus), reads, root_);
    meter.start();
    return meter.stop();
  };
  EXPECT_TRUE(std::isnan(interval({0, 7}, true).busy_us));  // a CPU that the file does not have
  EXPECT_TRUE(std::isnan(interval({0}, false).busy_us));    // another rank reads it
  EXPECT_TRUE(std::isnan(interval({0}, true).throttled_us));
  fs::remove(root_ + "/proc/stat");
  EXPECT_TRUE(std::isnan(interval({0}, true).steal_us));
}

TEST_F(MachineLoadFiles, ThrottledTimeOfVersionOneIsInNanoseconds) {
  group_v1("/", "/job/step");
  const std::string own = "/sys/fs/cgroup/cpu/job/step/cpu.stat";
  write(own, "nr_periods 4\nnr_throttled 1\nthrottled_time 5000000\n");
  write("/sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 0\nthrottled_time 0\n");
  LoadMeter meter({0}, true, root_);
  meter.start();
  write(own, "nr_periods 9\nnr_throttled 3\nthrottled_time 12000000\n");
  write("/sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 9\nthrottled_time 500000\n");
  EXPECT_DOUBLE_EQ(meter.stop().throttled_us, 7500);  // a quota of any level holds it back
}

TEST_F(MachineLoadFiles, ThrottledTimeOfVersionTwoIsInMicroseconds) {
  group_v2("/user.slice/job");
  const std::string own = "/sys/fs/cgroup/user.slice/job/cpu.stat";
  write(own, "usage_usec 9\nnr_throttled 1\nthrottled_usec 100\n");
  write("/sys/fs/cgroup/cpu.stat", "usage_usec 9\n");  // the root has no such counter
  LoadMeter meter({0}, true, root_);
  meter.start();
  write(own, "usage_usec 90\nnr_throttled 2\nthrottled_usec 350\n");
  EXPECT_DOUBLE_EQ(meter.stop().throttled_us, 250);
}

TEST_F(MachineLoadFiles, AContainerSeesItsGroupAsTheMountsRoot) {
  group_v1("/docker/abc", "/docker/abc");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota_text(root_),
            "1.5 CPU (150000 of each 100000 us, " + root_ + "/sys/fs/cgroup/cpu)");
}

TEST_F(MachineLoadFiles, TheTightestQuotaOnTheWayUpIsNamed) {
  EXPECT_EQ(cpu_quota_text(root_), "unknown");
  group_v2("/pod/container");
  EXPECT_EQ(cpu_quota_text(root_), "none");
  write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota_text(root_),
            "0.5 CPU (50000 of each 100000 us, " + root_ + "/sys/fs/cgroup/pod)");
  write("/sys/fs/cgroup/pod/container/cpu.max", "25000 100000\n");
  EXPECT_TRUE(cpu_quota_text(root_).starts_with("0.25 CPU (25000 of each 100000 us"));
}

MachineLoad reading(double wall, double busy, double own, double steal, double throttled) {
  return {wall, busy, steal, own, throttled, 2 * 10e3, 2};
}
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(LoadShares, OthersHaveWhatTheRanksOfTheHostHaveNot) {
  // One second on two CPUs; the ranks took 0.9 and 0.8 s of the 1.9 s that were used.
  const LoadShares shares =
      load_shares({reading(1e6, 1.9e6, 0.9e6, 40e3, 100), reading(1e6, kNaN, 0.8e6, kNaN, 700)});
  EXPECT_NEAR(shares.other_load, 0.1, 1e-9);
  EXPECT_NEAR(shares.steal, 0.02, 1e-9);
  EXPECT_EQ(shares.throttled_us, 700);
}

TEST(LoadShares, AnIntervalOfAFewTicksSaysNothing) {
  const LoadShares shares = load_shares({reading(50e3, 90e3, 90e3, 0, 3)});
  EXPECT_TRUE(std::isnan(shares.other_load));
  EXPECT_TRUE(std::isnan(shares.steal));
  EXPECT_EQ(shares.throttled_us, 3);  // that counter has no ticks
  EXPECT_EQ(load_shares({reading(100e3, 180e3, 190e3, 0, 0)}).other_load, 0);  // never below
}

TEST(LoadShares, OfSeveralHostsTheWorst) {
  auto bootstraps = make_thread_bootstraps(4, 2);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      // Virtual hosts are one machine: its first rank has read for all four.
      const double busy = rank == 0 ? 1.5e6 : kNaN;
      const LoadShares shares = load_shares(*bootstraps[static_cast<std::size_t>(rank)],
                                            reading(1e6, busy, 0.25e6, 0, 10 * rank));
      EXPECT_NEAR(shares.other_load, 0.25, 1e-9);
      EXPECT_EQ(shares.throttled_us, 30);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LoadMeter, SeesThisProcessAsItsOwnWork) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  LoadMeter meter(cpus, true);
  meter.start();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
  while (std::chrono::steady_clock::now() < end) {
  }
  const MachineLoad load = meter.stop();
  EXPECT_GT(load.own_us, 0.02 * load.wall_us);  // also on a machine with much other work
  EXPECT_LT(load.own_us, 1.2 * load.wall_us);
  EXPECT_GT(load.busy_us, load.own_us - load.steal_us - 2 * load.resolution_us);
}

TEST(LoadMeter, IsCheap) {
  LoadMeter meter({0}, true);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) meter.start();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count() / 100, 2000) << "microseconds a reading";
  RecordProperty("microseconds_a_reading", fmt::format("{:.1f}", took.count() / 100));
}

}  // namespace
}  // namespace weft
