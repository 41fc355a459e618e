// What schedules need of a network: derived, never assumed.
#include <gtest/gtest.h>

#include "bench/services.hpp"

namespace weft {
namespace {

StepDemand one_message() {
  return {.sends = true, .rounds = 1, .fan_in = 1, .messages_per_pair = 1};
}

TEST(Services, NothingSentNeedsNothing) {
  StepDemand silent = one_message();
  silent.sends = false;
  silent.rounds = 7;
  silent.fan_in = 3;
  EXPECT_EQ(needs_of(silent), ServiceNeeds{});
  EXPECT_EQ(to_string(needs_of(silent)), "nothing");
  EXPECT_EQ(needs_of(std::vector<StepDemand>{}), ServiceNeeds{});
}

TEST(Services, OneMessageNeedsToArriveAndNoMore) {
  EXPECT_EQ(to_string(needs_of(one_message())), "reliable");
}

TEST(Services, OrderWhereOnlyOrderTells) {
  StepDemand two = one_message();
  two.messages_per_pair = 2;
  EXPECT_EQ(to_string(needs_of(two)), "reliable, ordered");
}

TEST(Services, ASignalApartFromItsDataNeedsOrderAndIsCounted) {
  StepDemand put = one_message();
  put.signalled = true;
  EXPECT_EQ(to_string(needs_of(put)), "reliable, ordered, exactly once");
}

TEST(Services, SumsTakeEachPartOnce) {
  StepDemand sum = one_message();
  sum.reduces = true;
  EXPECT_TRUE(needs_of(sum).exactly_once);
  EXPECT_FALSE(needs_of(sum).ordered);
}

TEST(Services, FanInAndRoundsSufferFromLoss) {
  StepDemand incast = one_message();
  incast.fan_in = 3;
  EXPECT_TRUE(needs_of(incast).lossless);
  StepDemand ring = one_message();
  ring.rounds = 3;
  EXPECT_TRUE(needs_of(ring).lossless);
}

TEST(Services, AllStepsTogetherAndTheExchange) {
  StepDemand incast = one_message(), sum = one_message();
  incast.fan_in = 3;
  sum.reduces = true;
  const ServiceNeeds needs = needs_of(std::vector{incast, sum});
  EXPECT_EQ(to_string(needs), "reliable, exactly once, lossless");
  for (int bits = 0; bits < 16; ++bits) EXPECT_EQ(bits_of(needs_from(bits)), bits);
}

}  // namespace
}  // namespace weft
