// Shares of links, by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/link_use.hpp"

namespace weft {
namespace {

Message message(Rank source, Rank destination, Bytes bytes, Network network) {
  return {.source = source, .destination = destination, .bytes = bytes, .network = network};
}

HostInventory host(const char* name, double gbps, const char* interface = "eth0") {
  HostInventory result;
  result.host = name;
  result.interfaces = {{"lo2", 1, "sysfs", -1}, {interface, gbps, "sysfs", -1}};
  return result;
}

TEST(LinkBytes, InsideAHostPayloadOfTheBusiestRank) {
  // Rank 0 sends 300 and receives 100; rank 1 receives 400.
  const FlowLedger ledger({message(0, 1, 300, Network::scale_up),
                           message(2, 1, 100, Network::scale_up),
                           message(1, 0, 100, Network::scale_up)});
  const LinkBytes bytes = busiest_links(ledger, {0, 0, 0}, 4096);
  EXPECT_EQ(bytes.scale_up, 400);
  EXPECT_EQ(bytes.scale_out, 0);
}

TEST(LinkBytes, BetweenHostsFramesWithWhatIsAroundThem) {
  // Two messages of 4096 B from host 0 to host 1: 2 * (4096 + 82 + 20) one way, and 2 * (66 + 20)
  // of acknowledgements the other way. Virtual hosts {0,1} and {2,3}.
  const FlowLedger ledger(
      {message(0, 2, 4096, Network::scale_out), message(1, 3, 4096, Network::scale_out)});
  EXPECT_EQ(busiest_links(ledger, {0, 0, 1, 1}, 4096).scale_out, 2 * 4198);
  // With as much the other way, each direction has both.
  FlowLedger both = ledger;
  both.merge(FlowLedger(
      {message(2, 0, 4096, Network::scale_out), message(3, 1, 4096, Network::scale_out)}));
  EXPECT_EQ(busiest_links(both, {0, 0, 1, 1}, 4096).scale_out, 2 * 4198 + 2 * 86);
}

TEST(LinkBytes, MessagesOfAFlowAreTakenAsEqual) {
  // 100 B in three messages: 34 + 33 + 33, padded to 36 each.
  const FlowLedger ledger({message(0, 1, 50, Network::scale_out),
                           message(0, 1, 30, Network::scale_out),
                           message(0, 1, 20, Network::scale_out)});
  EXPECT_EQ(busiest_links(ledger, {0, 1}, 4096).scale_out, 3 * (36 + 82 + 20));
}

TEST(LinkUse, SharesByHand) {
  // 125 kB in 10 us over 100 Gbit/s is all of it; 20 kB of copies at 10 GB/s a fifth.
  const LinkUse use = link_use({20e3, 125e3}, 10, {100, "--link-rate", 10});
  EXPECT_DOUBLE_EQ(use.scale_out, 1);
  EXPECT_DOUBLE_EQ(use.scale_up, 0.2);
  EXPECT_DOUBLE_EQ(use.busiest, 1);
  EXPECT_EQ(use.rate_source,
            "scale_up: measured copy 10 GB/s a rank; scale_out: --link-rate 100 Gbit/s");
}

TEST(LinkUse, UnknownStaysUnknown) {
  const LinkUse use = link_use({20e3, 125e3}, 10, {0, "", 0});
  EXPECT_TRUE(std::isnan(use.scale_up) && std::isnan(use.scale_out) && std::isnan(use.busiest));
  EXPECT_EQ(use.rate_source, "");
  EXPECT_TRUE(std::isnan(link_use({1, 1}, std::nan(""), {1, "", 1}).busiest));
  EXPECT_TRUE(std::isnan(link_use({0, 0}, 10, {1, "", 1}).busiest));
  EXPECT_DOUBLE_EQ(link_use({20e3, 0}, 10, {0, "", 10}).busiest, 0.2);
}

TEST(LinkUse, MoreThanAllIsExplained) {
  EXPECT_NE(link_use({200e3, 0}, 10, {0, "", 10}).rate_source.find("caches"), std::string::npos);
  EXPECT_NE(link_use({0, 250e3}, 10, {100, "x", 0}).rate_source.find("exceeded"),
            std::string::npos);
}

TEST(LinkRates, WhatIsGivenCounts) {
  const LinkRates rates = link_rates(25, {host("a", 100), host("b", 100)}, 8);
  EXPECT_EQ(rates.scale_out_gbps, 25);
  EXPECT_EQ(rates.scale_out_from, "--link-rate");
  EXPECT_EQ(rates.copy_GBps, 8);
}

TEST(LinkRates, ElseTheSlowestHostsFastestInterface) {
  const LinkRates rates = link_rates(0, {host("a", 100), host("b", 40, "ib0"), host("c", 200)}, 8);
  EXPECT_EQ(rates.scale_out_gbps, 40);
  EXPECT_EQ(rates.scale_out_from, "sysfs ib0 on b");
}

TEST(LinkRates, UnknownWhereAnyIsOrWhereHostsAreVirtual) {
  HostInventory silent;
  silent.host = "b";
  EXPECT_EQ(link_rates(0, {host("a", 100), silent}, 8).scale_out_gbps, 0);
  EXPECT_EQ(link_rates(0, {host("a/v0", 100), host("a/v1", 100)}, 8).scale_out_gbps, 0);
  EXPECT_EQ(link_rates(0, {host("a", 100)}, 8).scale_out_gbps, 0);
  EXPECT_EQ(link_rates(0, {}, 8).scale_out_gbps, 0);
}

}  // namespace
}  // namespace weft
