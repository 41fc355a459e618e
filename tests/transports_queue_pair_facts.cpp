// What is said of queue pairs when some of them only answer.
#include "transports/queue_pair_facts.hpp"

#include <gtest/gtest.h>

#include "contract_world.hpp"

namespace weft {
namespace {

QueuePairFacts end_of(Rank rank, Rank peer, int index) {
  QueuePairFacts facts;
  facts.rank = rank;
  facts.peer = peer;
  facts.index = index;
  return facts;
}

// Rank 0 reads 10000 bytes of rank 1 over its second queue pair, and writes 8 over it: the answers
// (3 packets of a path MTU of 4096: 10000 + 3 x 62 + 2 x 4 bytes) are what rank 1 sends.
TEST(QueuePairFacts, AnswersToReadsAreWhatThePeerSends) {
  contract::run_ranks(2, [](Bootstrap& bootstrap) {
    const Rank me = bootstrap.rank();
    std::vector<QueuePairFacts> mine{end_of(me, 1 - me, 0), end_of(me, 1 - me, 1)};
    mine[1].sent = {.messages = 2, .payload = 8, .posted = 8, .packets = 2, .frame_bytes = 168};
    if (me == 0)
      mine[1].read = {
          .messages = 1, .payload = 10000, .posted = 10000, .packets = 3, .frame_bytes = 10194};
    const QueuePairs all = gather_queue_pairs(mine, bootstrap);
    ASSERT_EQ(all.size(), 4u);
    const QueuePairTraffic &asks = all.at({0, 1, 1}).sent, &answers = all.at({1, 0, 1}).sent;
    EXPECT_EQ(asks.payload, 8);
    EXPECT_EQ(asks.packets, 2);
    EXPECT_EQ(answers.payload, 10008);
    EXPECT_EQ(answers.posted, 10008);
    EXPECT_EQ(answers.packets, 5);
    EXPECT_EQ(answers.frame_bytes, 10362);
    EXPECT_EQ(answers.messages, 2);  // nobody gave it a work request for that
    EXPECT_EQ(all.at({1, 0, 0}).sent.payload, 0);
  });
}

}  // namespace
}  // namespace weft
