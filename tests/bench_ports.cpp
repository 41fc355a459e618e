// Port counters of hosts become columns of a row, and are held against what was posted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "bench/measure.hpp"
#include "bench/packets.hpp"
#include "bench/port_columns.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

Counted known(std::uint64_t value) { return {value, true, {}}; }
Counted unknown(const std::string& why) { return {0, false, why}; }

PortCounts rdma_port(const std::string& name) {
  PortCounts port;
  port.source = name;
  port.rdma = true;
  return port;
}

PortCounts tcp(std::uint64_t retransmits) {
  PortCounts port;
  port.source = "/proc/net/snmp";
  port[PortFigure::retransmits] = known(retransmits);
  port[PortFigure::discards] = known(0);
  return port;
}

/// Soft-RoCE: packets and retransmissions, no bytes.
PortCounts soft_port(std::uint64_t packets, std::uint64_t retransmits) {
  PortCounts port = rdma_port("rxe0:1 hw_counters");
  port[PortFigure::tx_packets] = port[PortFigure::rx_packets] = known(packets);
  port[PortFigure::retransmits] = known(retransmits);
  return port;
}

TEST(PortSum, OfHosts) {
  const std::vector<HostPorts> hosts{{"h1", {soft_port(100, 1), tcp(7)}},
                                     {"h2", {soft_port(50, 2), tcp(0)}}};
  const PortSum verbs = sum_of_ports(hosts, PortsUsed::rdma);
  EXPECT_EQ(verbs[PortFigure::tx_packets], known(150));
  EXPECT_EQ(verbs[PortFigure::retransmits], known(3)) << "TCP's are not its own";
  EXPECT_TRUE(verbs[PortFigure::tx_bytes].absent());
  EXPECT_EQ(verbs.sources, "h1: rxe0:1 hw_counters; h2: rxe0:1 hw_counters");
  EXPECT_NE(verbs.note.find("port_tx_bytes"), std::string::npos) << verbs.note;
  EXPECT_EQ(verbs.note.find("port_tx_packets"), std::string::npos) << verbs.note;
  EXPECT_EQ(sum_of_ports(hosts, PortsUsed::either)[PortFigure::retransmits], known(10));
}

TEST(PortSum, UnknownOfOneHostIsUnknown) {
  std::vector<HostPorts> hosts{{"h1", {soft_port(100, 1)}}, {"h2", {soft_port(50, 2)}}};
  hosts[1].ports[0][PortFigure::tx_packets] = unknown("sent_pkts says 'N/A (no PMA)'");
  const PortSum sum = sum_of_ports(hosts, PortsUsed::rdma);
  EXPECT_FALSE(sum[PortFigure::tx_packets].known);
  EXPECT_EQ(sum[PortFigure::retransmits], known(3));
  EXPECT_NE(sum.note.find("h2: rxe0:1 hw_counters: sent_pkts says 'N/A (no PMA)'"),
            std::string::npos)
      << sum.note;
}

// What only some of the ports count is no sum over all of them.
TEST(PortSum, CountedByAllPortsOrUnknown) {
  PortCounts other = soft_port(5, 0);
  other[PortFigure::tx_bytes] = known(1000);
  const PortSum sum = sum_of_ports({{"h1", {soft_port(100, 1), other}}}, PortsUsed::rdma);
  EXPECT_FALSE(sum[PortFigure::tx_bytes].known);
  EXPECT_NE(sum.note.find("port_tx_bytes is counted by some ports only"), std::string::npos);
  EXPECT_EQ(sum[PortFigure::tx_packets], known(105));
  const PortSum hosts =
      sum_of_ports({{"h1", {soft_port(100, 1)}}, {"h2", {tcp(0)}}}, PortsUsed::either);
  EXPECT_FALSE(hosts[PortFigure::tx_packets].known) << "h2 has no port";
}

TEST(PortSum, WithoutRdmaOnlyTcp) {
  const PortSum sum = sum_of_ports({{"h1", {tcp(3)}}}, PortsUsed::either);
  EXPECT_EQ(sum[PortFigure::retransmits], known(3));
  EXPECT_EQ(sum.sources, "/proc/net/snmp");
  EXPECT_EQ(sum.note, "no active RDMA port");
  EXPECT_EQ(sum_of_ports({{"h1", {tcp(3)}}}, PortsUsed::rdma).sources, "");
  EXPECT_TRUE(sum_of_ports({{"h1", {}}}, PortsUsed::either)[PortFigure::discards].absent());
}

FlowLedger two_messages() {
  const Message payload{.source = 0, .destination = 1, .bytes = 10000};
  Message credit{.source = 1, .destination = 0, .bytes = 8};
  credit.kind = MessageKind::control;
  return FlowLedger({payload, credit});
}

TEST(PortCheck, ExpectsFramesOfAllMessagesAndAcknowledgements) {
  // 10000 B at 4096: 3 packets and an acknowledgement; the credit: one of each. Frames have 62
  // bytes besides payload; RETH 16 and immediate 4 on each message; acknowledgements 66.
  const PortExpectation expected = expected_on_ports(two_messages(), 4096, 10);
  EXPECT_EQ(expected.packets, 60);
  EXPECT_EQ(expected.bytes, 10 * (10000 + 3 * 62 + 20 + 66 + 8 + 62 + 20 + 66));
  EXPECT_EQ(expected_on_ports(two_messages(), 4096, 0).packets, 0);
}

// To the work request: 10000 B in 3 packets, 8 B, and a signal without bytes; each acknowledged.
TEST(PortCheck, ExpectsWhatQueuePairsWereGiven) {
  const PortExpectation expected = expected_on_ports(WorkPosted{3, 5, 10008});
  EXPECT_EQ(expected.packets, 5 + 3);
  EXPECT_EQ(expected.bytes, 10008 + 5 * 62 + 3 * (20 + 66));
  // As of the ledger, where that holds all.
  const PortExpectation of_ledger = expected_on_ports(two_messages(), 4096, 10);
  const PortExpectation of_work = expected_on_ports(WorkPosted{20, 40, 10 * 10008});
  EXPECT_EQ(of_ledger.packets, of_work.packets);
  EXPECT_EQ(of_ledger.bytes, of_work.bytes);
}

// A READ of 10000 B: a request of 62 + 16 bytes, and 3 packets back that have AETH on first and
// last. One WRITE of 8 B beside it, acknowledged.
TEST(PortCheck, ExpectsAnswersToReads) {
  QueuePairFacts pair;
  pair.sent = {.messages = 2, .payload = 8, .posted = 8, .packets = 2, .frame_bytes = 168};
  pair.read = {
      .messages = 1, .payload = 10000, .posted = 10000, .packets = 3, .frame_bytes = 10194};
  const PortExpectation expected = expected_on_ports(work_of({pair}));
  EXPECT_EQ(expected.packets, 1 + 3 + 1 + 1);
  EXPECT_EQ(expected.bytes, (62 + 16) + (10000 + 3 * 62 + 8) + (8 + 62 + 20) + 66);
}

TEST(PortCheck, BytesWhereTheyAreCountedElsePackets) {
  const PortExpectation expected{100, 50000};
  PortSum sum;
  EXPECT_TRUE(std::isnan(port_difference(sum, expected)));
  sum.figures[static_cast<std::size_t>(PortFigure::tx_packets)] = known(110);
  EXPECT_DOUBLE_EQ(port_difference(sum, expected), 110.0 / 100 - 1);
  sum.figures[static_cast<std::size_t>(PortFigure::tx_bytes)] = known(49000);
  EXPECT_DOUBLE_EQ(port_difference(sum, expected), 49000.0 / 50000 - 1);
  EXPECT_TRUE(std::isnan(port_difference(sum, {0, 0})));
  sum.figures[static_cast<std::size_t>(PortFigure::tx_bytes)] = unknown("went back");
  EXPECT_DOUBLE_EQ(port_difference(sum, expected), 110.0 / 100 - 1);
}

Row row_of(const char* transport, const char* phase) {
  Row row;
  row.set("transport", transport);
  row.set("phase", phase);
  return row;
}

TEST(PortColumns, OfVerbs) {
  const FlowLedger posted = two_messages();
  Row row = row_of("verbs", "comm");
  add_port_columns(row, {{{"h1", {soft_port(66, 1), tcp(9)}}}, 10}, &posted, 4096);
  const auto expect = [&](const char* column, const char* text) {
    EXPECT_EQ(row.get(column), text) << column;
  };
  expect("port_tx_packets", "66");
  expect("retransmits", "1");
  expect("port_tx_bytes", "");
  expect("cnp", "");
  expect("port_iterations", "10");
  expect("port_tx_expected_packets", "60");
  expect("port_tx_expected_bytes", "104280");
  expect("port_difference", "0.1");
  expect("port_source", "rxe0:1 hw_counters");
  // What was posted, where that is known, is more than was recorded: signals too.
  add_port_columns(row, {{{"h1", {soft_port(66, 1)}}}, 10, {30, 50, 100080}}, &posted, 4096);
  expect("port_tx_expected_packets", "80");
  expect("port_difference", "-0.175");
  EXPECT_NE(row.get("counter_note").find("port_tx_bytes"), std::string_view::npos);
}

TEST(PortColumns, OnlyWhereBytesLeaveMemory) {
  const FlowLedger posted = two_messages();
  const PortRecord record{{{"h1", {soft_port(66, 1), tcp(9)}}}, 10};
  Row mpi = row_of("mpi", "comm");
  add_port_columns(mpi, record, nullptr, 4096);
  EXPECT_EQ(mpi.get("retransmits"), "10");
  EXPECT_EQ(mpi.get("port_source"), "rxe0:1 hw_counters; /proc/net/snmp");
  EXPECT_EQ(mpi.get("port_tx_expected_bytes"), "");
  EXPECT_EQ(mpi.get("port_difference"), "");
  for (Row row : {row_of("shm", "comm"), row_of("bare", "comm"), row_of("verbs", "compute")}) {
    add_port_columns(row, record, &posted, 4096);
    for (const char* column : {"retransmits", "port_tx_packets", "port_iterations", "port_source",
                               "port_tx_expected_packets", "port_difference"}) {
      EXPECT_EQ(row.get(column), "") << column;
    }
    EXPECT_NE(row.get("counter_note"), "");
  }
}

// ---- over a run

/// A made-up host with one Soft-RoCE port whose counter the tests' iterations move.
class FakePort {
 public:
  FakePort() {
    std::string pattern = fs::temp_directory_path().string() + "/weft-port-XXXXXX";
    root_ = mkdtemp(pattern.data());
    const fs::path port = root_ / "rxe0/ports/1";
    fs::create_directories(port / "hw_counters");
    std::ofstream(port / "state") << "4: ACTIVE\n";
    sent_ = port / "hw_counters/sent_pkts";
    std::ofstream(port / "hw_counters/completer_retry_err") << "N/A\n";
    send(0);
  }
  ~FakePort() { fs::remove_all(root_); }
  PortRoots roots() const { return {root_, root_ / "snmp"}; }
  void send(int packets) {
    packets_ += packets;
    std::ofstream(sent_) << packets_ << "\n";
  }

 private:
  fs::path root_, sent_;
  std::uint64_t packets_ = 1000;
};

/// Ranks that say they run on hosts of their own.
class OwnHost : public Bootstrap {
 public:
  explicit OwnHost(Bootstrap& inner) : inner_(inner) {
    for (int rank = 0; rank < inner.size(); ++rank) hosts_.push_back(fmt::format("h{}", rank));
  }
  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    return inner_.all_gather(mine);
  }
  void barrier() override { inner_.barrier(); }
  void send(Rank to, double value) override { inner_.send(to, value); }
  double receive(Rank from) override { return inner_.receive(from); }
  const std::vector<std::string>& hosts() const override { return hosts_; }

 private:
  Bootstrap& inner_;
  std::vector<std::string> hosts_;
};

void on_threads(int n, const std::function<void(Bootstrap&)>& body) {
  auto bootstraps = make_thread_bootstraps(n);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) threads.emplace_back([&] { body(*bootstrap); });
  for (std::thread& thread : threads) thread.join();
}

StoppingRule a_few_blocks() {
  StoppingRule rule;
  rule.precision = 0;
  rule.min_time_us = 0;
  rule.max_time_us = 60e3;
  return rule;
}

// Two contestants in turns: each has what was sent in its own blocks, of its own iterations, and
// neither has anything of warm-up or of the other.
TEST(MeasurePorts, EachContestantHasItsOwnTraffic) {
  FakePort port;
  on_threads(2, [&](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, true);
    NoiseMeter noise(bootstrap);
    PortMeter ports(bootstrap, port.roots());
    const auto sends = [&](int packets) {
      return [&, packets] {
        if (bootstrap.rank() == 1) port.send(packets);  // not the rank that reads
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      };
    };
    std::int64_t given = 0;  // the first and the last have their queue pairs in common
    const auto gives = [&](int packets) {
      return [&given, packets, send = sends(packets)] {
        given += packets;
        send();
      };
    };
    const auto work = [&given] { return WorkPosted{given, 2 * given, 10 * given}; };
    const std::vector<Contestant> contestants{
        {gives(3), {}, work}, {sends(1000)}, {gives(7), {}, work}};
    const auto results = measure({bootstrap, start, noise, 5, &ports}, a_few_blocks(), contestants);
    const std::uint64_t each[] = {3, 1000, 7};
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Measurement& m = results[i];
      ASSERT_EQ(m.ports.size(), 1u);  // virtual hosts or not: one machine, one reader
      ASSERT_EQ(m.ports[0].ports.size(), 1u);
      EXPECT_GE(m.port_iterations, m.summary.n);
      const Counted& sent = m.ports[0].ports[0][PortFigure::tx_packets];
      EXPECT_TRUE(sent.known) << sent.why;
      EXPECT_EQ(sent.value, each[i] * static_cast<std::uint64_t>(m.port_iterations));
      EXPECT_NE(m.ports[0].ports[0][PortFigure::retransmits].why, "");
      // Of both ranks.
      const std::int64_t posted = i == 1 ? 0 : 2 * static_cast<std::int64_t>(sent.value);
      EXPECT_EQ(m.posted, (WorkPosted{posted, 2 * posted, 10 * posted}));
    }
  });
}

TEST(MeasurePorts, EveryHostIsRead) {
  FakePort first, second;
  on_threads(2, [&](Bootstrap& threads) {
    OwnHost bootstrap(threads);
    FakePort& mine = bootstrap.rank() == 0 ? first : second;
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, true);
    NoiseMeter noise(bootstrap);
    PortMeter ports(bootstrap, mine.roots());
    const Contestant contestant{[&] { mine.send(bootstrap.rank() == 0 ? 2 : 5); }};
    const Measurement m =
        measure({bootstrap, start, noise, 5, &ports}, a_few_blocks(), std::span(&contestant, 1))
            .front();
    ASSERT_EQ(m.ports.size(), 2u);
    EXPECT_EQ(m.ports[1].host, "h1");
    const PortSum sum = sum_of_ports(m.ports, PortsUsed::rdma);
    EXPECT_EQ(sum[PortFigure::tx_packets],
              known(7 * static_cast<std::uint64_t>(m.port_iterations)));
    EXPECT_EQ(sum.sources, "h0: rxe0:1 hw_counters; h1: rxe0:1 hw_counters");
    EXPECT_FALSE(sum[PortFigure::retransmits].known);
  });
}

TEST(MeasurePorts, NotAtAllWithoutAMeter) {
  on_threads(1, [](Bootstrap& bootstrap) {
    const HostClocks clocks(bootstrap, bootstrap.host_leaders());
    CommonStart start(bootstrap, clocks, true);
    NoiseMeter noise(bootstrap);
    const Contestant contestant{[] {}};
    const Measurement m =
        measure({bootstrap, start, noise, 5}, a_few_blocks(), std::span(&contestant, 1)).front();
    EXPECT_TRUE(m.ports.empty());
  });
}

}  // namespace
}  // namespace weft
