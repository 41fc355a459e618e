// Frequency, bursts and concurrency of messages whose times are known.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/burst.hpp"
#include "bench/concurrency.hpp"

namespace weft {
namespace {

Message message(Rank source, Rank destination, Bytes bytes, double posted_us, double completed_us) {
  Message m{.source = source, .destination = destination, .bytes = bytes};
  m.posted_us = posted_us;
  m.completed_us = completed_us;
  return m;
}

Timeline timeline(double span_us, std::vector<Message> messages) {
  return {span_us, std::move(messages), true};
}

TEST(Timeline, IterationsFollowOneAnotherWithoutPauses) {
  InstrumentedIteration first, second;
  first.begin_us = 1000;
  first.end_us = 1300;
  first.messages = {message(0, 1, 8, 1100, 1200)};
  second.begin_us = 5000;
  second.end_us = 5200;
  second.messages = {message(0, 1, 8, 5050, 5100)};
  const Timeline joined = timeline_of({first, second});
  EXPECT_TRUE(joined.timed);
  EXPECT_DOUBLE_EQ(joined.span_us, 500);
  EXPECT_DOUBLE_EQ(joined.messages[0].posted_us, 100);
  EXPECT_DOUBLE_EQ(joined.messages[1].posted_us, 350);
  EXPECT_DOUBLE_EQ(joined.messages[1].completed_us, 400);
}

TEST(Timeline, WithoutTimesNothingIsKnown) {
  InstrumentedIteration iteration;
  iteration.end_us = 1000;
  EXPECT_FALSE(timeline_of({}).timed);
  EXPECT_FALSE(timeline_of({iteration}).timed);  // no messages
  iteration.messages = {message(0, 1, 8, 10, 20), message(0, 1, 8, 0, 0)};
  const Timeline unknown = timeline_of({iteration});
  EXPECT_FALSE(unknown.timed);
  const Burstiness bursts = burstiness_of(unknown, {0, 0});
  for (double value : {bursts.msgs_per_s, bursts.gap_p50_us, bursts.gap_p99_us,
                       bursts.duty_cycle[0], bursts.peak_to_mean[2]})
    EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(concurrency_of(unknown).flows_max, 0);
}

TEST(Windows, BytesAreSpreadOverTheMessagesTime) {
  // 100 B over 50..250 us: 25, 50, 25 in windows of 100 us; the last is 100 us and the rest wide.
  const auto windows = bytes_in_windows({message(0, 1, 100, 50, 250)}, 450, 100);
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_DOUBLE_EQ(windows[0], 25);
  EXPECT_DOUBLE_EQ(windows[1], 50);
  EXPECT_DOUBLE_EQ(windows[2], 25);
  EXPECT_DOUBLE_EQ(windows[3], 0);
}

TEST(Windows, InstantMessagesAndTheEndLoseNoByte) {
  const auto windows = bytes_in_windows(
      {message(0, 1, 7, 100, 100), message(0, 1, 5, 390, 470), message(0, 1, 3, 449, 449)}, 450,
      100);
  double sum = 0;
  for (double window : windows) sum += window;
  EXPECT_DOUBLE_EQ(sum, 15);
  EXPECT_DOUBLE_EQ(windows[1], 7);
  EXPECT_TRUE(bytes_in_windows({message(0, 1, 8, 0, 1)}, 199, 100).empty());
}

TEST(Burstiness, ByHand) {
  // 1000 us; one sender: 600 B in 0..100, 200 B in 100..200 (no gap), 200 B in 450..500 (gap 250).
  const Burstiness b =
      burstiness_of(timeline(1000, {message(0, 1, 600, 0, 100), message(0, 1, 200, 100, 200),
                                    message(0, 1, 200, 450, 500)}),
                    {0, 0});
  EXPECT_DOUBLE_EQ(b.msgs_per_s, 3000);
  EXPECT_DOUBLE_EQ(b.gap_p50_us, 0);  // of 0 and 250 the lower
  EXPECT_TRUE(std::isnan(b.gap_p99_us));
  // 600 B end at the very beginning of the second window; nothing of them lies in it.
  EXPECT_DOUBLE_EQ(b.duty_cycle[0], 0.3);
  EXPECT_DOUBLE_EQ(b.peak_to_mean[0], 6);
  EXPECT_TRUE(std::isnan(b.duty_cycle[1]));  // 1 ms does not fit twice
}

TEST(Burstiness, EvenTrafficHasNoBursts) {
  std::vector<Message> messages;
  for (int i = 0; i < 250; ++i) messages.push_back(message(0, 1, 64, i * 10.0, i * 10.0 + 10));
  const Burstiness b = burstiness_of(timeline(2500, messages), {0, 0});
  EXPECT_NEAR(b.duty_cycle[0], 1, 1e-12);
  EXPECT_NEAR(b.peak_to_mean[0], 1, 1e-9);
  EXPECT_NEAR(b.duty_cycle[1], 1, 1e-12);
  EXPECT_NEAR(b.peak_to_mean[1], 1, 1e-9);
  EXPECT_DOUBLE_EQ(b.gap_p99_us, 0);
  EXPECT_DOUBLE_EQ(b.msgs_per_s, 1e5);
}

TEST(Burstiness, IsThatOfTheHostThatSendsMost) {
  // Host 1 (rank 2) sends more, at once; host 0 evenly. Messages a second are of all senders.
  const std::vector<Message> messages = {message(0, 2, 10, 0, 500), message(1, 2, 10, 500, 1000),
                                         message(2, 0, 1000, 0, 100)};
  const Burstiness b = burstiness_of(timeline(1000, messages), {0, 0, 1});
  EXPECT_DOUBLE_EQ(b.duty_cycle[0], 0.1);
  EXPECT_DOUBLE_EQ(b.peak_to_mean[0], 10);
  EXPECT_DOUBLE_EQ(b.msgs_per_s, 1000);
}

TEST(Timeline, PartsKeepTheSpan) {
  Message tp = message(0, 1, 8, 10, 20), dp = message(0, 1, 8, 30, 40);
  tp.dim = Dimension::tp;
  dp.dim = Dimension::dp;
  const Timeline part = timeline(100, {tp, dp}).part(Dimension::dp, Network::scale_up);
  EXPECT_DOUBLE_EQ(part.span_us, 100);
  ASSERT_EQ(part.messages.size(), 1u);
  EXPECT_EQ(part.messages[0].posted_us, 30);
  EXPECT_FALSE(timeline(100, {tp}).part(Dimension::pp, {}).timed);
}

TEST(Concurrency, CountsFlowsUnderWay) {
  // 0->1 in 0..100, again in 20..30 (same flow); 2->1 in 50..150; 0->3 from 100 on (the first ends
  // there).
  const Concurrency c =
      concurrency_of(timeline(200, {message(0, 1, 8, 0, 100), message(0, 1, 8, 20, 30),
                                    message(2, 1, 8, 50, 150), message(0, 3, 8, 100, 200)}));
  EXPECT_EQ(c.flows_max, 2);
  EXPECT_EQ(c.fan_in_max, 2);
}

TEST(Concurrency, OneAfterAnotherIsOne) {
  const Concurrency c = concurrency_of(
      timeline(30, {message(0, 1, 8, 0, 10), message(1, 2, 8, 10, 20), message(2, 0, 8, 20, 30)}));
  EXPECT_EQ(c.flows_max, 1);
  EXPECT_EQ(c.fan_in_max, 1);
}

TEST(Concurrency, InstantMessagesCount) {
  const Concurrency c =
      concurrency_of(timeline(30, {message(0, 1, 8, 5, 15), message(2, 1, 8, 10, 10)}));
  EXPECT_EQ(c.flows_max, 2);
  EXPECT_EQ(c.fan_in_max, 2);
}

TEST(Instrument, FewIterationsWhereTheyAreLongOrFull) {
  EXPECT_EQ(iterations_to_instrument(10, 8), 64);
  EXPECT_EQ(iterations_to_instrument(5000, 8), 5);
  EXPECT_EQ(iterations_to_instrument(1e6, 8), 2);
  EXPECT_EQ(iterations_to_instrument(10, 1'000'000), 1);
  EXPECT_EQ(iterations_to_instrument(10, 0), 64);
  EXPECT_EQ(iterations_to_instrument(std::nan(""), 8), 1);
}

}  // namespace
}  // namespace weft
