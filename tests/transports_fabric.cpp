#include <filesystem>
#include <fstream>

#include "contract_world.hpp"
#include "transports/fabric_sysfs.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Files of a made-up /sys or /proc.
class FakeFiles {
 public:
  FakeFiles() {
    std::string pattern = fs::temp_directory_path().string() + "/weft-fabric-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~FakeFiles() { fs::remove_all(root_); }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  fs::path operator/(const char* name) const { return root_ / name; }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

std::string driver_of(const std::string& name) { return name == "veth0" ? "veth" : "mlx5_core"; }

TEST(Fabric, RatesOfInterfaces) {
  const FakeFiles files;
  const auto interface = [&](const std::string& name, const std::string& type,
                             const std::string& state) {
    files.write(name + "/type", type);
    files.write(name + "/operstate", state);
    files.write(name + "/carrier", "1");
  };
  interface("lo", "772", "unknown");
  interface("down0", "1", "down");
  interface("eth0", "1", "up");
  files.write("eth0/speed", "200000");
  files.write("eth0/device/numa_node", "1");
  interface("eth1", "1", "unknown");
  files.write("eth1/speed", "-1");
  interface("eth2", "1", "up");  // no speed at all
  interface("veth0", "1", "up");
  files.write("veth0/speed", "10000");
  const auto found = read_interfaces(files.root(), driver_of);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].name, "eth0");
  EXPECT_EQ(found[0].link_gbps, 200.0);
  EXPECT_EQ(found[0].rate_source, "sysfs");
  EXPECT_EQ(found[0].numa, 1);
  EXPECT_EQ(found[1].link_gbps, 0.0);
  EXPECT_EQ(found[1].rate_source, "unknown (sysfs speed says -1)");
  EXPECT_EQ(found[1].numa, -1);
  EXPECT_EQ(found[2].link_gbps, 0.0);
  EXPECT_EQ(found[2].rate_source, "unknown (sysfs speed: No such file or directory)");
  EXPECT_EQ(found[3].link_gbps, 10.0);
  EXPECT_EQ(found[3].rate_source, "sysfs (nominal: veth)");
  EXPECT_TRUE(read_interfaces(files / "missing", nullptr).empty());
}

TEST(Fabric, LeastQuotaAlongTheCgroupPath) {
  const FakeFiles files;
  files.write("membership", "0::/job/step");
  files.write("cgroup/job/cpu.max", "150000 100000");
  files.write("cgroup/job/step/cpu.max", "max 100000");
  EXPECT_EQ(read_cpu_quota(files / "membership", files / "cgroup"), 1.5);
  files.write("membership", "3:memory:/job\n4:cpu,cpuacct:/one");
  files.write("cgroup/cpu/one/cpu.cfs_quota_us", "50000");
  files.write("cgroup/cpu/one/cpu.cfs_period_us", "100000");
  EXPECT_EQ(read_cpu_quota(files / "membership", files / "cgroup"), 0.5);
  files.write("membership", "0::/elsewhere");
  EXPECT_EQ(read_cpu_quota(files / "membership", files / "cgroup"), 0.0);
  EXPECT_EQ(read_cpu_quota(files / "missing", files / "cgroup"), 0.0);
}

TEST(Fabric, ThisHost) {
  const HostInventory host = read_inventory();
  EXPECT_FALSE(host.host.empty());
  EXPECT_FALSE(host.kernel.empty());
  EXPECT_GE(host.cores, 1);
  EXPECT_GT(host.memory, 0);
  for (const NetworkInterface& i : host.interfaces) {
    EXPECT_NE(i.name, "lo");
    EXPECT_FALSE(i.rate_source.empty()) << i.name;
  }
}

TEST(Fabric, OneInventoryPerHost) {
  contract::run_ranks(
      3,
      [](Bootstrap& b) {
        const auto hosts = gather_inventory(b);
        ASSERT_EQ(hosts.size(), 2u);
        EXPECT_EQ(hosts[0].host, "thread-host/v0");
        EXPECT_EQ(hosts[1].host, "thread-host/v1");
        EXPECT_EQ(hosts[1].cores, read_inventory().cores);
      },
      2);
}

}  // namespace
}  // namespace weft
