#include "transports/flow.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "patterns/error.hpp"

namespace weft {
namespace {

Message payload(Rank source, Rank destination, Bytes bytes, std::uint16_t channel = 0) {
  return {.source = source, .destination = destination, .bytes = bytes, .channel = channel};
}

Flow flow(Rank source, Rank destination, Bytes bytes, std::uint16_t channel = 0) {
  return {.source = source,
          .destination = destination,
          .channel = channel,
          .messages = 1,
          .bytes = bytes};
}

TEST(FlowLedger, AddsUpMessagesOfOneFlow) {
  const FlowLedger ledger(
      {payload(1, 0, 30), payload(0, 1, 10), payload(0, 1, 5), payload(0, 1, 7, 3)});
  ASSERT_EQ(ledger.flows().size(), 3u);
  EXPECT_EQ(ledger.flows()[0].source, 0);
  EXPECT_EQ(ledger.flows()[0].channel, 0);
  EXPECT_EQ(ledger.flows()[0].messages, 2);
  EXPECT_EQ(ledger.flows()[0].bytes, 15);
  EXPECT_EQ(ledger.flows()[1].channel, 3);
  EXPECT_EQ(ledger.flows()[2].source, 1);
  EXPECT_EQ(ledger.message_sizes(), (std::vector<Bytes>{5, 7, 10, 30}));
}

TEST(FlowLedger, ComparesWhatWasSentNotInWhichOrder) {
  const FlowLedger a({payload(0, 1, 10), payload(2, 1, 4), payload(0, 1, 20)});
  const FlowLedger b({payload(0, 1, 20), payload(0, 1, 10), payload(2, 1, 4)});
  const FlowLedger other_sizes({payload(0, 1, 15), payload(0, 1, 15), payload(2, 1, 4)});
  EXPECT_EQ(a, b);
  EXPECT_NE(a, other_sizes);
}

TEST(FlowLedger, LeavesOutEmptyMessagesAndTellsKindsApart) {
  Message credit = payload(1, 0, 8);
  credit.kind = MessageKind::control;
  Message far = payload(0, 2, 100);
  far.network = Network::scale_out;
  Message other_dimension = payload(0, 1, 1);
  other_dimension.dim = Dimension::tp;
  const FlowLedger ledger({payload(0, 1, 0), payload(0, 1, 64), credit, far, other_dimension});
  EXPECT_EQ(ledger.flows().size(), 4u);
  EXPECT_EQ(ledger.message_sizes(), (std::vector<Bytes>{1, 64, 100}));
  EXPECT_EQ(ledger.bytes(MessageKind::payload), 165);
  EXPECT_EQ(ledger.bytes(MessageKind::control), 8);
  EXPECT_EQ(ledger.bytes(MessageKind::payload, Network::scale_up), 65);
  EXPECT_EQ(ledger.bytes(MessageKind::payload, Network::scale_out), 100);
  EXPECT_EQ(ledger.bytes(MessageKind::payload, Network::other), 0);
}

TEST(FlowLedger, MergesTheLedgersOfRanks) {
  const std::vector<Message> first = {payload(0, 1, 10), payload(0, 2, 20)};
  const std::vector<Message> second = {payload(1, 0, 5), payload(0, 1, 3)};
  std::vector<Message> both = first;
  both.insert(both.end(), second.begin(), second.end());
  FlowLedger merged(first);
  merged.merge(FlowLedger(second));
  EXPECT_EQ(merged, FlowLedger(both));
  merged.merge(merged);
  EXPECT_EQ(merged.bytes(MessageKind::payload), 76);
  EXPECT_EQ(merged.message_sizes().size(), 8u);
  EXPECT_EQ(merged.flows().size(), 3u);
  merged.merge(FlowLedger());
  EXPECT_EQ(merged.bytes(MessageKind::payload), 76);
}

TEST(FlowLedger, SurvivesTheExchange) {
  Message control = payload(70000, 3, Bytes{1} << 40, 65535);
  control.kind = MessageKind::control;
  control.dim = Dimension::pp;
  control.network = Network::other;
  const FlowLedger ledger({payload(0, 1, 10), payload(0, 1, Bytes{3} << 33), control});
  const std::vector<std::byte> bytes = ledger.serialize();
  EXPECT_EQ(FlowLedger::deserialize(bytes.data(), bytes.size()), ledger);
  const std::vector<std::byte> none = FlowLedger().serialize();
  EXPECT_EQ(FlowLedger::deserialize(none.data(), none.size()), FlowLedger());
}

TEST(FlowLedger, RejectsDamagedBytes) {
  std::vector<std::byte> bytes = FlowLedger({payload(0, 1, 10), payload(1, 0, 10)}).serialize();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(FlowLedger::deserialize(bytes.data(), size), Error) << size;
  bytes.push_back(std::byte{0});
  EXPECT_THROW(FlowLedger::deserialize(bytes.data(), bytes.size()), Error);
  bytes.assign(8, std::byte{0xff});  // a count that would ask for all memory
  EXPECT_THROW(FlowLedger::deserialize(bytes.data(), bytes.size()), Error);
}

TEST(FlowLedger, PartsAreWhatWasSentInOneDimensionOverOneNetwork) {
  Message tp = payload(0, 1, 10), far = payload(0, 2, 100), dp = payload(0, 1, 7);
  tp.dim = far.dim = Dimension::tp;
  far.network = Network::scale_out;
  dp.dim = Dimension::dp;
  const FlowLedger ledger({tp, tp, far, dp});
  using Part = std::pair<Dimension, Network>;
  EXPECT_EQ(ledger.parts(), (std::vector<Part>{{Dimension::tp, Network::scale_up},
                                               {Dimension::tp, Network::scale_out},
                                               {Dimension::dp, Network::scale_up}}));
  EXPECT_EQ(ledger.part(Dimension::tp, Network::scale_up), FlowLedger({tp, tp}));
  EXPECT_EQ(ledger.part(Dimension::tp, {}), FlowLedger({tp, tp, far}));
  EXPECT_EQ(ledger.part({}, Network::scale_up), FlowLedger({tp, tp, dp}));
  EXPECT_EQ(ledger.part(Dimension::pp, {}), FlowLedger());
  FlowLedger joined;
  for (const auto& [dim, network] : ledger.parts()) joined.merge(ledger.part(dim, network));
  EXPECT_EQ(joined, ledger);
}

TEST(SizeHistogram, NearestRanksByHand) {
  SizeHistogram sizes;
  sizes.add(10, 10);
  sizes.add(20, 9);
  sizes.add(1000);
  sizes.add(5, 0);  // none
  EXPECT_EQ(sizes.count(), 20);
  EXPECT_EQ(sizes.total(), 10 * 10 + 9 * 20 + 1000);
  EXPECT_EQ(sizes.min(), 10);
  EXPECT_EQ(sizes.percentile(0.5), 10);   // the 10th of 20
  EXPECT_EQ(sizes.percentile(0.95), 20);  // the 19th of 20
  EXPECT_EQ(sizes.percentile(0.96), 1000);
  EXPECT_EQ(sizes.percentile(1.0), 1000);
  EXPECT_EQ(sizes.count_from(20), 10);
  EXPECT_EQ(sizes.total_from(21), 1000);
  EXPECT_EQ(SizeHistogram().percentile(0.5), 0);
  EXPECT_EQ(SizeHistogram().max(), 0);
}

TEST(FlowRecorder, RecordsOnlyWhileEnabled) {
  FlowRecorder recorder(2);
  recorder.append(payload(0, 1, 1));
  recorder.enable(false);
  recorder.append(payload(0, 1, 2));
  recorder.enable(true);
  recorder.append(payload(0, 1, 4));
  recorder.append(payload(0, 1, 8));
  EXPECT_EQ(recorder.messages().size(), 3u);
  EXPECT_EQ(recorder.seal().bytes(MessageKind::payload), 13);
  recorder.clear();
  EXPECT_EQ(recorder.seal(), FlowLedger());
}

TEST(FlowStatistics, EqualFlows) {
  // Four equal flows: 2 bits, four effective flows, perfectly even.
  const FlowStatistics s =
      statistics_of({flow(0, 1, 5), flow(1, 2, 5), flow(2, 3, 5), flow(3, 0, 5)});
  EXPECT_EQ(s.flows, 4);
  EXPECT_EQ(s.bytes, 20);
  EXPECT_EQ(s.flow_p50, 5);
  EXPECT_EQ(s.flow_max, 5);
  EXPECT_DOUBLE_EQ(s.entropy_bits, 2.0);
  EXPECT_DOUBLE_EQ(s.effective_flows, 4.0);
  EXPECT_DOUBLE_EQ(s.evenness, 1.0);
  EXPECT_EQ(s.fan_in_max, 1);
}

TEST(FlowStatistics, UnequalFlowsByHand) {
  // Shares 1/2, 1/4, 1/8, 1/8: H = 1/2 + 2/4 + 3/8 + 3/8 = 1.75 bits; 2^1.75 = 3.3635856610;
  // evenness 1.75 / 2.
  const FlowStatistics s =
      statistics_of({flow(0, 9, 400), flow(1, 9, 200), flow(2, 9, 100), flow(2, 9, 100, 1)});
  EXPECT_DOUBLE_EQ(s.entropy_bits, 1.75);
  EXPECT_NEAR(s.effective_flows, 3.3635856610, 1e-9);
  EXPECT_DOUBLE_EQ(s.evenness, 0.875);
  EXPECT_EQ(s.flow_p50, 100);  // the lower of the two in the middle: 100, 100, 200, 400
  EXPECT_EQ(s.flow_max, 400);
  EXPECT_EQ(s.fan_in_max, 3);  // rank 2's two channels are flows of their own, but one source
}

TEST(FlowStatistics, ThreeToOne) {
  // Shares 3/4 and 1/4: 0.75 log2(4/3) + 0.25 * 2 = 0.8112781245 bits.
  const FlowStatistics s = statistics_of({flow(0, 1, 3), flow(1, 0, 1)});
  EXPECT_NEAR(s.entropy_bits, 0.8112781245, 1e-9);
  EXPECT_NEAR(s.effective_flows, 1.7547653506, 1e-9);
  EXPECT_NEAR(s.evenness, 0.8112781245, 1e-9);
}

TEST(FlowStatistics, OneFlowHasNoEvenness) {
  const FlowStatistics s = statistics_of({flow(0, 1, 7)});
  EXPECT_EQ(s.entropy_bits, 0.0);
  EXPECT_FALSE(std::signbit(s.entropy_bits));
  EXPECT_EQ(s.effective_flows, 1.0);
  EXPECT_TRUE(std::isnan(s.evenness));
}

TEST(FlowStatistics, TheNetworkDoesNotSeeDimensions) {
  // One pair that talks in two dimensions over one channel has one flow.
  Flow tp = flow(0, 1, 10), ep = flow(0, 1, 30);
  tp.dim = Dimension::tp;
  ep.dim = Dimension::ep;
  const FlowStatistics s = statistics_of({tp, ep});
  EXPECT_EQ(s.flows, 1);
  EXPECT_EQ(s.flow_max, 40);
  EXPECT_EQ(s.entropy_bits, 0.0);
}

TEST(FlowStatistics, EntropyOfEachSendingHost) {
  // Hosts {0,1} and {2,3}: the first sends 3:1 (0.8112781245 bits), the second two equal flows (1).
  const auto bits =
      host_entropy_bits({flow(0, 2, 3), flow(1, 3, 1), flow(2, 0, 5), flow(3, 0, 5)}, {0, 0, 1, 1});
  ASSERT_EQ(bits.size(), 2u);
  EXPECT_NEAR(bits.at(0), 0.8112781245, 1e-9);
  EXPECT_NEAR(bits.at(1), 1.0, 1e-12);
  EXPECT_TRUE(host_entropy_bits({flow(0, 1, 0)}, {0, 0}).empty());
}

TEST(FlowStatistics, OnlyPayloadOfMoreThanZeroBytesCounts) {
  Flow control = flow(5, 1, 1000);
  control.kind = MessageKind::control;
  const FlowStatistics s = statistics_of({control, flow(3, 1, 0)});
  EXPECT_EQ(s.flows, 0);
  EXPECT_EQ(s.bytes, 0);
  EXPECT_EQ(s.fan_in_max, 0);
  EXPECT_EQ(s.effective_flows, 0.0);
  EXPECT_TRUE(std::isnan(s.evenness));
}

TEST(Network, HasAName) {
  EXPECT_EQ(to_string(Network::scale_up), "scale_up");
  EXPECT_EQ(to_string(Network::scale_out), "scale_out");
  EXPECT_EQ(to_string(Network::other), "other");
}

}  // namespace
}  // namespace weft
