// RoCEv2 frame sizes, added up by hand: Ethernet 18, IPv4 20, UDP 8, BTH 12, ICRC 4 = 62; RETH 16;
// immediate 4; AETH 4.
#include <gtest/gtest.h>

#include "bench/packets.hpp"

namespace weft {
namespace {

struct Known {
  Bytes message, mtu;
  std::int64_t count;
  Bytes largest, median, wire;
};

class PacketsOf : public testing::TestWithParam<Known> {};

TEST_P(PacketsOf, AgreesWithTheHandCalculation) {
  const Known& known = GetParam();
  const Packets packets = packets_of(known.message, known.mtu);
  EXPECT_EQ(packets.count, known.count);
  EXPECT_EQ(packets.largest, known.largest);
  EXPECT_EQ(packets.median, known.median);
  EXPECT_EQ(packets.wire_bytes, known.wire);
}

INSTANTIATE_TEST_SUITE_P(
    ByHand, PacketsOf,
    testing::Values(Known{1, 4096, 1, 86, 86, 86},           // 62+16+4 + 1 padded to 4
                    Known{64, 4096, 1, 146, 146, 146},       // 82 + 64
                    Known{4096, 4096, 1, 4178, 4178, 4178},  // first and last at once
                    Known{4097, 4096, 2, 4174, 70, 4244},    // 4096+78, then 4+66
                    Known{8192, 4096, 2, 4174, 4162,
                          8336},  // RETH on the first, immediate on the last
                    Known{3000, 1024, 3, 1102, 1086, 3206},             // 1024+78, 1024+62, 952+66
                    Known{1 << 20, 4096, 256, 4174, 4158, 1064468},     // 2^20 + 256*62 + 20
                    Known{1 << 20, 1024, 1024, 1102, 1086, 1112084}));  // 2^20 + 1024*62 + 20

TEST(Packets, NoBytesAreNoPackets) {
  EXPECT_EQ(packets_of(0, 4096).count, 0);
  EXPECT_EQ(packets_of(0, 4096).wire_bytes, 0);
}

TEST(Packets, BeyondTwoGibibytes) {
  const Bytes message = (Bytes{1} << 31) + 4;
  const Packets packets = packets_of(message, 4096);
  EXPECT_EQ(packets.count, 524289);
  EXPECT_EQ(packets.wire_bytes, message + 524289 * 62 + 20);
  EXPECT_EQ(packets.median, 4158);
}

SizeHistogram of(std::initializer_list<std::pair<Bytes, std::int64_t>> sizes) {
  SizeHistogram histogram;
  for (const auto& [size, count] : sizes) histogram.add(size, count);
  return histogram;
}

TEST(PacketHistogram, BothDirectionsByHand) {
  // Three messages of 9000 B at 4096: 4174 + 4158 + (808 + 66 = 874) each; two of 100 B: 182 each;
  // each is acknowledged by 62 + 4 = 66 B.
  const PacketHistogram packets = packets_of(of({{9000, 3}, {100, 2}}), 4096);
  EXPECT_EQ(packets.data, of({{4174, 3}, {4158, 3}, {874, 3}, {182, 2}}));
  EXPECT_EQ(packets.acks, of({{66, 5}}));
  EXPECT_EQ(histogram_text(packets, 16), "66 x 5 + 182 x 2 + 874 x 3 + 4158 x 3 + 4174 x 3");
  EXPECT_EQ(histogram_text(packets, 2), "66 x 5 + 874 x 3 + other x 8");
  // Preamble 8 and gap 12 around each frame.
  EXPECT_EQ(link_bytes(packets.acks), 5 * 86);
  EXPECT_EQ(link_bytes(packets.data), 3 * (4174 + 4158 + 874) + 2 * 182 + 11 * 20);
}

TEST(PacketHistogram, OfTwoMiddlesTheLower) {
  EXPECT_EQ(packets_of(8192, 4096).median, 4162);
  EXPECT_EQ(packets_of(of({{8192, 1}}), 4096).data.percentile(0.5), 4162);
}

TEST(PacketHistogram, NothingSentIsNoPackets) {
  const PacketHistogram packets = packets_of(of({{0, 7}}), 4096);
  EXPECT_TRUE(packets.data.empty());
  EXPECT_TRUE(packets.acks.empty());
  EXPECT_EQ(histogram_text(packets, 4), "");
  EXPECT_EQ(link_bytes(packets.data), 0);
}

TEST(PayloadText, LargestFirst) {
  EXPECT_EQ(payload_text(of({{4096 * 3 + 64, 2}}), 4096, 2), "4096 x 6, 64 x 2");
  EXPECT_EQ(payload_text(of({{1, 1}, {2, 1}, {3, 1}}), 4096, 2), "3 x 1, 2 x 1, +1 sizes");
  EXPECT_EQ(payload_text({}, 4096, 2), "");
}

}  // namespace
}  // namespace weft
