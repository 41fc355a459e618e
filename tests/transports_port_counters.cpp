// Counters of ports, from folders as odd as those of the field.
#include "transports/port_counters.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "transports/fabric_sysfs.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSnmp =
    "Ip: Forwarding InDiscards OutDiscards\nIp: 2 0 0\n"
    "Tcp: RtoAlgorithm MaxConn RetransSegs\nTcp: 1 -1 {}\n"
    "Udp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 5 0 0\n";

/// A made-up /sys/class/infiniband and /proc/net/snmp.
class FakePorts {
 public:
  FakePorts() {
    std::string pattern = fs::temp_directory_path().string() + "/weft-ports-XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~FakePorts() { fs::remove_all(root_); }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void port(const std::string& device, const std::string& state = "4: ACTIVE") const {
    write(device + "/ports/1/state", state + "\n");
  }
  void counter(const std::string& device, const std::string& name, const std::string& text) const {
    write(device + "/ports/1/" + name, text);
  }
  void retransmitted(int segments) const {
    std::string text = kSnmp;
    text.replace(text.find("{}"), 2, std::to_string(segments));
    write("snmp", text);
  }
  fs::path path(const std::string& name) const { return root_ / name; }
  PortRoots roots() const { return {root_, root_ / "snmp"}; }

 private:
  fs::path root_;
};

void expect_known(const Counted& counted, std::uint64_t value) {
  EXPECT_TRUE(counted.known) << counted.why;
  EXPECT_EQ(counted.value, value);
}

/// Unknown, never 0, and the reason has this in it.
void expect_unknown(const Counted& counted, const std::string& reason) {
  EXPECT_FALSE(counted.known) << counted.value;
  EXPECT_NE(counted.why.find(reason), std::string::npos) << counted.why << " lacks " << reason;
}

TEST(PortCounters, DataAreInUnitsOfFourBytes) {
  const FakePorts files;
  files.port("mlx5_0");
  files.counter("mlx5_0", "counters/port_xmit_data", "1000\n");
  files.counter("mlx5_0", "counters/port_rcv_data", "5000000000000\n");  // above 32 bits
  files.counter("mlx5_0", "counters/port_xmit_packets", "7\n");
  PortCounters counters(files.roots());
  counters.start();
  files.counter("mlx5_0", "counters/port_xmit_data", "1250\n");
  files.counter("mlx5_0", "counters/port_rcv_data", "5000000000001\n");
  const auto ports = counters.lap();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].source, "mlx5_0:1 counters");
  EXPECT_TRUE(ports[0].rdma);
  expect_known(ports[0][PortFigure::tx_bytes], 1000);
  expect_known(ports[0][PortFigure::rx_bytes], 4);
  expect_known(ports[0][PortFigure::tx_packets], 0);
  EXPECT_TRUE(ports[0][PortFigure::rx_packets].absent()) << "no file, no zero";
  EXPECT_TRUE(ports[0][PortFigure::retransmits].absent());
}

TEST(PortCounters, SoftRoceHasPacketsAndErrors) {
  const FakePorts files;
  files.port("rxe0");
  const char* names[] = {"sent_pkts",          "rcvd_pkts",       "completer_retry_err",
                         "out_of_seq_request", "rcvd_rnr_err",    "duplicate_request",
                         "send_rnr_err",       "lifespan_of_mine"};
  for (const char* name : names) files.counter("rxe0", fmt::format("hw_counters/{}", name), "10");
  PortCounters counters(files.roots());
  counters.start();
  for (int i = 0; i < 8; ++i)
    files.counter("rxe0", fmt::format("hw_counters/{}", names[i]), std::to_string(11 + i));
  const auto ports = counters.lap();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0].source, "rxe0:1 hw_counters");
  expect_known(ports[0][PortFigure::tx_packets], 1);
  expect_known(ports[0][PortFigure::rx_packets], 2);
  expect_known(ports[0][PortFigure::retransmits], 3);
  expect_known(ports[0][PortFigure::out_of_sequence], 4);
  expect_known(ports[0][PortFigure::rnr_naks], 5);
  expect_known(ports[0][PortFigure::duplicates], 6);
  EXPECT_TRUE(ports[0][PortFigure::tx_bytes].absent());
  // The next interval begins where this one ended.
  expect_known(counters.lap()[0][PortFigure::tx_packets], 0);
}

TEST(PortCounters, FiguresAreSumsOfTheirCounters) {
  const FakePorts files;
  files.port("mlx5_0");
  for (const char* name : {"local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err"})
    files.counter("mlx5_0", fmt::format("hw_counters/{}", name), "1");
  // Packets by two names: one of them counts.
  files.counter("mlx5_0", "counters/port_xmit_packets", "100");
  files.counter("mlx5_0", "hw_counters/tx_pkts", "100");
  PortCounters counters(files.roots());
  counters.start();
  files.counter("mlx5_0", "hw_counters/local_ack_timeout_err", "3");
  files.counter("mlx5_0", "hw_counters/packet_seq_err", "6");
  files.counter("mlx5_0", "counters/port_xmit_packets", "140");
  files.counter("mlx5_0", "hw_counters/tx_pkts", "140");
  const auto ports = counters.lap();
  expect_known(ports[0][PortFigure::retransmits], 7);
  expect_known(ports[0][PortFigure::tx_packets], 40);
  EXPECT_EQ(ports[0].source, "mlx5_0:1 counters+hw_counters");
}

// One odd file says nothing about the others.
TEST(PortCounters, OddFilesAreUnknownAndTheOthersGoOn) {
  const FakePorts files;
  files.port("mlx5_0");
  files.counter("mlx5_0", "counters/port_xmit_data", "N/A (no PMA)\n");
  files.counter("mlx5_0", "counters/port_rcv_data", "");
  files.counter("mlx5_0", "counters/port_xmit_packets", "-1\n");
  files.counter("mlx5_0", "counters/port_rcv_packets", "12 packets\n");
  files.counter("mlx5_0", "counters/port_xmit_wait", "99999999999999999999999\n");
  fs::create_directories(files.path("mlx5_0/ports/1/counters/port_xmit_discards"));  // no file
  files.counter("mlx5_0", "hw_counters/rnr_nak_retry_err", std::string("\x00\xff\n", 3));
  files.counter("mlx5_0", "hw_counters/out_of_sequence", "  17 \n\n");
  PortCounters counters(files.roots());
  counters.start();
  files.counter("mlx5_0", "hw_counters/out_of_sequence", "  19 \n\n");
  const auto ports = counters.lap();
  ASSERT_EQ(ports.size(), 1u);
  expect_unknown(ports[0][PortFigure::tx_bytes], "port_xmit_data says 'N/A (no PMA)'");
  expect_unknown(ports[0][PortFigure::rx_bytes], "port_rcv_data is empty");
  expect_unknown(ports[0][PortFigure::tx_packets], "says '-1'");
  expect_unknown(ports[0][PortFigure::rx_packets], "says '12 packets'");
  expect_unknown(ports[0][PortFigure::pauses], "says '99999");
  expect_unknown(ports[0][PortFigure::discards], "port_xmit_discards Is a directory");
  expect_unknown(ports[0][PortFigure::rnr_naks], "rnr_nak_retry_err says '");
  expect_known(ports[0][PortFigure::out_of_sequence], 2);
}

// A sum with a part that is unknown is unknown.
TEST(PortCounters, AnUnknownPartMakesItsFigureUnknown) {
  const FakePorts files;
  files.port("mlx5_0");
  files.counter("mlx5_0", "hw_counters/local_ack_timeout_err", "1");
  files.counter("mlx5_0", "hw_counters/packet_seq_err", "N/A");
  files.counter("mlx5_0", "hw_counters/implied_nak_seq_err", "5");
  PortCounters counters(files.roots());
  counters.start();
  expect_unknown(counters.lap()[0][PortFigure::retransmits], "packet_seq_err says 'N/A'");
}

TEST(PortCounters, SaturatedWrappedOrStartedAnew) {
  const FakePorts files;
  files.port("ib0");
  const auto set = [&](const std::string& name, const std::string& text) {
    files.counter("ib0", "counters/" + name, text);
  };
  set("port_xmit_data", "4294967295");     // 32 bits, full, and stays there
  set("port_rcv_data", "4294967290");      // becomes full
  set("port_xmit_packets", "4294967295");  // full, then from the start again
  set("port_rcv_packets", "1000");         // reset
  set("port_xmit_wait", "4294967000");     // 64 bits: goes on
  set("port_xmit_discards", "65535");      // 16 bits, full
  PortCounters counters(files.roots());
  counters.start();
  set("port_rcv_data", "4294967295");
  set("port_xmit_packets", "12");
  set("port_rcv_packets", "3");
  set("port_xmit_wait", "4294967300");
  const auto ports = counters.lap();
  expect_unknown(ports[0][PortFigure::tx_bytes], "4294967295");
  expect_unknown(ports[0][PortFigure::rx_bytes], "4294967295");
  expect_unknown(ports[0][PortFigure::tx_packets], "port_xmit_packets");
  expect_unknown(ports[0][PortFigure::rx_packets], "went back from 1000 to 3");
  expect_known(ports[0][PortFigure::pauses], 300);
  expect_unknown(ports[0][PortFigure::discards], "65535");
  // What went back counts again from there.
  set("port_rcv_packets", "10");
  expect_known(counters.lap()[0][PortFigure::rx_packets], 7);
}

TEST(PortCounters, ADirectoryThatGoesHalfWay) {
  const FakePorts files;
  files.port("rxe0");
  files.counter("rxe0", "hw_counters/sent_pkts", "10");
  files.counter("rxe0", "hw_counters/rcvd_pkts", "10");
  PortCounters counters(files.roots());
  counters.start();
  std::vector<PortCounts> sum;
  files.counter("rxe0", "hw_counters/sent_pkts", "15");
  add_interval(sum, counters.lap());
  expect_known(sum[0][PortFigure::tx_packets], 5);
  fs::remove_all(files.path("rxe0"));
  add_interval(sum, counters.lap());
  expect_unknown(sum[0][PortFigure::tx_packets], "sent_pkts");
  files.counter("rxe0", "hw_counters/sent_pkts", "20");  // back again: the sum has a hole
  add_interval(sum, counters.lap());
  expect_unknown(sum[0][PortFigure::tx_packets], "sent_pkts");
  EXPECT_EQ(sum[0][PortFigure::tx_packets].value, 0u);
}

TEST(PortCounters, OnlyActivePorts) {
  const FakePorts files;
  files.port("mlx5_0", "1: DOWN");
  files.port("mlx5_1", "4: ACTIVE");
  files.port("mlx5_2", "2: INIT");
  files.write("mlx5_3/node_type", "1: CA");              // no ports
  files.write("mlx5_4/ports/1/link_layer", "Ethernet");  // no state
  files.write("mlx5_5/ports/2/state", "4: ACTIVE");
  files.write("README", "no device");
  for (const char* device : {"mlx5_0", "mlx5_1", "mlx5_2"})
    files.counter(device, "hw_counters/tx_pkts", "1");
  PortCounters counters(files.roots());
  counters.start();
  const auto ports = counters.lap();
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].source, "mlx5_1:1 hw_counters");
  EXPECT_EQ(ports[1].source, "mlx5_5:2 without known counters");
  EXPECT_FALSE(counters.without_rdma());
}

TEST(PortCounters, TcpOfTheKernel) {
  const FakePorts files;
  files.retransmitted(6);
  PortCounters counters(files.roots());
  counters.start();
  files.retransmitted(10);
  const auto sources = counters.lap();
  ASSERT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].source, files.path("snmp").string());
  EXPECT_FALSE(sources[0].rdma);
  EXPECT_TRUE(counters.without_rdma());
  expect_known(sources[0][PortFigure::retransmits], 4);
  expect_known(sources[0][PortFigure::discards], 0);
  EXPECT_TRUE(sources[0][PortFigure::tx_bytes].absent());
  files.write("snmp", "Tcp: RtoAlgorithm RetransSegs\nIp: torn");
  expect_unknown(counters.lap()[0][PortFigure::retransmits], "RetransSegs");
  fs::remove(files.path("snmp"));
  expect_unknown(counters.lap()[0][PortFigure::retransmits], "No such file");
}

TEST(PortCounters, NothingAtAll) {
  PortCounters counters({"/nowhere/infiniband", "/nowhere/snmp"});
  counters.start();
  EXPECT_TRUE(counters.lap().empty());
  EXPECT_TRUE(counters.without_rdma());
}

TEST(PortCounters, ThisHost) {
  PortCounters counters;
  counters.start();
  for (const PortCounts& source : counters.lap()) {
    EXPECT_FALSE(source.source.empty());
    if (source.rdma) continue;
    EXPECT_TRUE(source[PortFigure::retransmits].known) << source[PortFigure::retransmits].why;
  }
}

// Drivers show the same numbers for a while; a lap must not end on numbers from before its traffic.
TEST(PortCounters, WaitsForNumbersThatADriverKeeps) {
  const FakePorts files;
  files.port("rxe0");
  files.counter("rxe0", "hw_counters/sent_pkts", "1");
  files.counter("rxe0", "hw_counters/lifespan", "12\n");
  PortCounters counters(files.roots());
  counters.start();
  const auto began = std::chrono::steady_clock::now();
  counters.lap();
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(20));
  EXPECT_LT(took, std::chrono::seconds(2));
}

TEST(PortCounters, EveryFigureHasAColumn) {
  for (std::size_t f = 0; f < kPortFigures; ++f)
    EXPECT_FALSE(to_string(static_cast<PortFigure>(f)).empty());
  EXPECT_EQ(to_string(PortFigure::retransmits), "retransmits");
  EXPECT_EQ(to_string(PortFigure::rx_packets), "port_rx_packets");
}

// A rate that opens and then fails to be read, or makes no sense, is no rate.
TEST(PortCounters, LinkSpeedsThatAreNone) {
  const FakePorts files;
  const auto interface = [&](const std::string& name) {
    files.write(name + "/type", "1\n");
    files.write(name + "/operstate", "up\n");
  };
  for (const char* name : {"eth0", "eth1", "eth2", "eth3"}) interface(name);
  files.write("eth0/speed", "4294967295\n");  // -1 of an old driver
  fs::create_directories(files.path("eth1/speed"));
  files.write("eth2/speed", "");
  files.write("eth3/speed", "0\n");
  const auto found = read_interfaces(files.path(""), nullptr);
  ASSERT_EQ(found.size(), 4u);
  for (const NetworkInterface& one : found) {
    EXPECT_EQ(one.link_gbps, 0) << one.name << ": " << one.rate_source;
    EXPECT_TRUE(one.rate_source.starts_with("unknown (sysfs speed")) << one.rate_source;
  }
}

}  // namespace
}  // namespace weft
