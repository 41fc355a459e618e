// Hashes against published values, and the spread over paths against known figures.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string_view>

#include "bench/ecmp.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

std::uint32_t address(int a, int b, int c, int d) {
  return static_cast<std::uint32_t>(a << 24 | b << 16 | c << 8 | d);
}

std::vector<FiveTuple> equal_flows(int count) {
  std::vector<FiveTuple> tuples;
  for (int i = 0; i < count; ++i) {
    FiveTuple& tuple = tuples.emplace_back();
    tuple.source = address(10, 0, 0, 1);
    tuple.destination = address(10, 0, 0, 2);
    tuple.source_port = static_cast<std::uint16_t>(0xC000 + i);
    tuple.destination_port = 4791;
    tuple.bytes = 1000;
  }
  return tuples;
}

TEST(EcmpHash, Crc32HasItsCheckValue) {
  const std::string_view check = "123456789";
  EXPECT_EQ(crc32(reinterpret_cast<const std::uint8_t*>(check.data()), check.size()), 0xCBF43926u);
}

// The verification suite of Microsoft's receive-side scaling, IPv4 with ports.
TEST(EcmpHash, ToeplitzAgreesWithThePublishedSuite) {
  struct Known {
    std::uint32_t destination;
    int destination_port;
    std::uint32_t source;
    int source_port;
    std::uint32_t hash;
  };
  for (const Known& k :
       {Known{address(161, 142, 100, 80), 1766, address(66, 9, 149, 187), 2794, 0x51ccc178},
        Known{address(65, 69, 140, 83), 4739, address(199, 92, 111, 2), 14230, 0xc626b0ea},
        Known{address(12, 22, 207, 184), 38024, address(24, 19, 198, 95), 12898, 0x5c2b394a},
        Known{address(209, 142, 163, 6), 2217, address(38, 27, 205, 30), 48228, 0xafc7327f},
        Known{address(202, 188, 127, 2), 1303, address(153, 39, 163, 191), 44251, 0x10e828a2}}) {
    FiveTuple tuple;
    tuple.source = k.source;
    tuple.destination = k.destination;
    tuple.source_port = static_cast<std::uint16_t>(k.source_port);
    tuple.destination_port = static_cast<std::uint16_t>(k.destination_port);
    EXPECT_EQ(hash_of(tuple, EcmpHash::toeplitz, 0), k.hash);
  }
}

TEST(EcmpHash, XorFoldByHand) {
  FiveTuple tuple;
  tuple.source = 0x0A000001;
  tuple.destination = 0x0A000002;
  tuple.source_port = 0xC121;
  tuple.destination_port = 0x12B7;
  // 0A00 ^ 0001 ^ 0A00 ^ 0002 ^ C121 ^ 12B7 ^ 0011
  EXPECT_EQ(hash_of(tuple, EcmpHash::xor_fold, 0), 0xD384u);
}

TEST(EcmpHash, NamesAndTheUnknownOne) {
  for (const EcmpHash hash :
       {EcmpHash::ideal, EcmpHash::crc32, EcmpHash::toeplitz, EcmpHash::xor_fold})
    EXPECT_EQ(find_ecmp_hash(to_string(hash)), hash);
  try {
    find_ecmp_hash("md5");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    for (const char* part : {"md5", "ideal", "crc32", "toeplitz", "xor"})
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << part;
  }
}

TEST(RoceSourcePort, AsSeenFromSoftRoce) {
  EXPECT_EQ(roce_source_port(0x11, 0x11), 0xC121);
  EXPECT_EQ(roce_source_port(0x12, 0x12), 0xC144);
  EXPECT_EQ(roce_source_port(0x13, 0x13), 0xC169);
  EXPECT_EQ(roce_source_port(0x14, 0x14), 0xC190);
}

TEST(RoceSourcePort, FoldsTheHighBitsOfTheLabel) {
  // v = 0x12345 * 0x6789 = 0x75CCA2ED; v ^ v>>20 = 0x75CCA5B1; of the label 0xCA5B1 the low 14
  // bits are 0x25B1 and the high 6 are 0x32: 0x2583 | 0xC000.
  EXPECT_EQ(roce_source_port(0x12345, 0x6789), 0xE583);
}

// n balls into 8 bins, most over mean: what 1, 4, 16, 64 equal flows per link come to.
TEST(PathSpread, IdealHashReproducesTheKnownFigures) {
  constexpr int kLinks = 8;
  const std::pair<int, double> known[] = {{1, 2.60}, {4, 1.77}, {16, 1.37}, {64, 1.18}};
  for (const auto& [per_link, max_mean] : known) {
    const PathSpread spread = spread_over(equal_flows(per_link * kLinks), EcmpHash::ideal, kLinks);
    EXPECT_NEAR(spread.max_mean, max_mean, 0.03 * max_mean) << per_link << " flows per link";
    EXPECT_GT(spread.entropy, 0.5);
    EXPECT_LT(spread.entropy, 1.0);
  }
}

TEST(PathSpread, LoadsAreByHash) {
  const std::vector<FiveTuple> tuples = equal_flows(100);
  for (const EcmpHash hash : {EcmpHash::crc32, EcmpHash::toeplitz, EcmpHash::xor_fold}) {
    std::vector<double> loads(4, 0.0);
    for (const FiveTuple& tuple : tuples) loads[hash_of(tuple, hash, 0) % 4] += tuple.bytes;
    const PathSpread spread = spread_over(tuples, hash, 4);
    EXPECT_EQ(spread.loads, loads);
    EXPECT_DOUBLE_EQ(spread.max_mean, *std::max_element(loads.begin(), loads.end()) / 25000);
    double entropy = 0;
    for (double load : loads) {
      if (load > 0) entropy -= load / 1e5 * std::log2(load / 1e5);
    }
    EXPECT_NEAR(spread.entropy, entropy / 2, 1e-12);
  }
}

TEST(PathSpread, OneFlowTakesOnePath) {
  for (const EcmpHash hash : {EcmpHash::ideal, EcmpHash::crc32}) {
    const PathSpread spread = spread_over(equal_flows(1), hash, 8);
    EXPECT_DOUBLE_EQ(spread.max_mean, 8.0);
    EXPECT_DOUBLE_EQ(spread.entropy, 0.0);
  }
}

TEST(PathSpread, OnePathAndNoBytes) {
  const PathSpread one = spread_over(equal_flows(3), EcmpHash::crc32, 1);
  EXPECT_DOUBLE_EQ(one.max_mean, 1.0);
  EXPECT_TRUE(std::isnan(one.entropy));
  const PathSpread none = spread_over({}, EcmpHash::ideal, 8);
  EXPECT_TRUE(std::isnan(none.max_mean));
  EXPECT_TRUE(std::isnan(none.entropy));
}

Flow flow(Rank source, Rank destination, Bytes bytes) {
  return {.source = source, .destination = destination, .messages = 1, .bytes = bytes};
}

TEST(FiveTuples, HostsHaveAddressesAndQueuePairsNumbers) {
  // Ranks 0, 1 on host 0; 2, 3 on host 1. Host 0 numbers (0->2), (1->3): 0x11, 0x12; host 1 too.
  const auto tuples = five_tuples({flow(0, 2, 100), flow(1, 3, 50)}, {0, 0, 1, 1}, 1);
  ASSERT_EQ(tuples.size(), 2u);
  EXPECT_EQ(tuples[0].source, address(10, 0, 0, 1));
  EXPECT_EQ(tuples[0].destination, address(10, 0, 0, 2));
  EXPECT_EQ(tuples[0].source_port, 0xC121);
  EXPECT_EQ(tuples[1].source_port, 0xC144);
  EXPECT_EQ(tuples[0].destination_port, 4791);
  EXPECT_EQ(tuples[0].bytes, 100);
}

TEST(FiveTuples, BothDirectionsUseOneQueuePair) {
  const auto tuples = five_tuples({flow(0, 1, 8), flow(1, 0, 8)}, {0, 1}, 1);
  ASSERT_EQ(tuples.size(), 2u);
  EXPECT_EQ(tuples[0].source_port, 0xC121);
  EXPECT_EQ(tuples[1].source_port, 0xC121);
}

TEST(FiveTuples, QueuePairsShareTheBytes) {
  const auto tuples = five_tuples({flow(0, 1, 100)}, {0, 1}, 4);
  ASSERT_EQ(tuples.size(), 4u);
  const std::uint16_t ports[] = {0xC121, 0xC144, 0xC169, 0xC190};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tuples[i].bytes, 25);
    EXPECT_EQ(tuples[i].source_port, ports[i]);
  }
}

TEST(FiveTuples, ControlAndEmptyFlowsAreNone) {
  Flow control = flow(0, 1, 8);
  control.kind = MessageKind::control;
  EXPECT_TRUE(five_tuples({control, flow(1, 0, 0)}, {0, 1}, 1).empty());
}

}  // namespace
}  // namespace weft
