// The order of what arrives on several queue pairs. Built once more with WEFT_MUTATION_UNORDERED, a
// receiver that takes completions in the order they come in: these tests must fail then.
#ifdef WEFT_HAS_VERBS
#include <gtest/gtest.h>

#include "transports/verbs_channels.hpp"

namespace weft {
namespace {

TEST(VerbsChannels, ImmediatesReadBackAsWritten) {
  const Immediate one{63, 1, 16, 255, 0xFFF};
  const Immediate same = Immediate::unpack(one.pack());
  EXPECT_EQ(same.comm, 63);
  EXPECT_EQ(same.channel, 1);
  EXPECT_EQ(same.parts, 16);
  EXPECT_EQ(same.slot, 255);
  EXPECT_EQ(same.message, 0xFFFu);
}

std::uint64_t whole(Arrivals& arrivals) {
  while (arrivals.next_is_whole()) arrivals.pass();
  return arrivals.count();
}

// What a prepared message carries, and what is added when it is sent: 12 bits of its number.
TEST(VerbsChannels, SlotAndMessageAreTheirOwnBits) {
  const std::uint32_t all = Immediate{5, 1, 0, 77, 0x123}.pack();
  const std::uint32_t prepared = Immediate{5, 1, 0, 0, 0}.pack();
  EXPECT_EQ(prepared | Immediate::slot_and_message(77, 0xABC123), all);
  EXPECT_EQ(all & ~Immediate::kSlotMask, (Immediate{5, 1, 0, 0, 0x123}.pack()));
}

// A message that went straight to its place counts like those that were taken note of.
TEST(VerbsChannels, OneThatWasNotTakenCountsToo) {
  Arrivals arrivals(8);
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 1}));
  EXPECT_EQ(whole(arrivals), 0u);
  arrivals.pass_untaken();
  EXPECT_EQ(whole(arrivals), 2u);
}

// Queue pairs overtake each other: what came first is not what was sent first.
TEST(VerbsChannels, AMessageCountsWhenThoseBeforeItAreThere) {
  Arrivals arrivals(8);
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 1}));
  EXPECT_EQ(whole(arrivals), 0u);
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 2}));
  EXPECT_EQ(whole(arrivals), 0u);
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 0}));
  EXPECT_EQ(whole(arrivals), 3u);
}

TEST(VerbsChannels, AMessageInPartsWaitsForAll) {
  Arrivals arrivals(8);
  for (int part = 0; part < 4; ++part) {
    EXPECT_EQ(whole(arrivals), 0u);
    EXPECT_TRUE(arrivals.take({0, 0, 4, 0, 0}));
  }
  EXPECT_EQ(whole(arrivals), 1u);
}

TEST(VerbsChannels, CountsGoOnBeyondTheBitsOfAnImmediate) {
  Arrivals arrivals(4);
  for (std::uint32_t message = 0; message < 10000; ++message) {
    ASSERT_TRUE(arrivals.take({0, 0, 1, 0, message & Immediate::kMessageMask}));
    ASSERT_EQ(whole(arrivals), message + 1);
  }
}

TEST(VerbsChannels, WhatCannotBeIsRefused) {
  Arrivals arrivals(4);
  EXPECT_FALSE(arrivals.take({0, 0, 1, 0, 4}));  // farther ahead than anybody may be
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 0}));
  EXPECT_FALSE(arrivals.take({0, 0, 1, 0, 0}));  // twice the same
}

TEST(VerbsChannels, SlotsBelongToTheirMessages) {
  Arrivals arrivals(8);
  EXPECT_TRUE(arrivals.take({0, 0, 0, 5, 1}));
  EXPECT_TRUE(arrivals.take({0, 0, 1, 0, 0}));
  ASSERT_TRUE(arrivals.next_is_whole());
  EXPECT_EQ(arrivals.next_slot(), -1);
  arrivals.pass();
  ASSERT_TRUE(arrivals.next_is_whole());
  EXPECT_EQ(arrivals.next_slot(), 5);
}

}  // namespace
}  // namespace weft
#endif
