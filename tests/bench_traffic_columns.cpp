// A row's traffic figures from a known ledger; nothing is known of nothing.
#include <gtest/gtest.h>

#include <string>

#include "bench/row_text.hpp"
#include "bench/traffic_columns.hpp"

namespace weft {
namespace {

Message message(Rank source, Rank destination, Bytes bytes, Dimension dim = Dimension::tp,
                Network network = Network::scale_up) {
  return {
      .source = source, .destination = destination, .bytes = bytes, .dim = dim, .network = network};
}

struct Setting {
  Options options;
  TrafficSetting setting{options, {0, 0, 1, 1}, {100, "--link-rate", 10}, 1000};
};

TrafficPart part(std::vector<Message> messages) {
  TrafficPart result;
  result.ledger = FlowLedger(std::move(messages));
  result.flow_source = "recorded";
  result.recorded = true;
  return result;
}

TEST(TrafficColumns, OfAKnownLedger) {
  const Setting s;
  TrafficPart known =
      part({message(0, 1, 3'000'000), message(0, 1, 1'000'000), message(2, 3, 500'000),
            message(0, 2, 8, Dimension::dp, Network::scale_out)});
  known.operations = 2;
  known.operation_bytes.add(4'000'000, 2);
  known.needs = {.reliable = true, .ordered = true};
  Row row;
  add_traffic_columns(row, known, s.setting);
  const auto expect = [&](const char* column, const char* text) {
    EXPECT_EQ(row.get(column), text) << column;
  };
  expect("network", "scale_up+scale_out");
  expect("bytes_wire", "4500008");
  expect("bytes_scale_out", "8");
  expect("operations", "2");
  expect("operation_bytes_p95", "4000000");
  expect("messages", "4");
  expect("message_bytes_min", "8");
  expect("message_bytes_p50", "500000");
  expect("message_bytes_p95", "3000000");
  expect("ack_packets", "4");
  expect("packet_bytes_min", "90");  // 8 + 82
  expect("packet_bytes_max", "4174");
  expect("flows", "3");
  expect("flow_bytes_min", "8");
  expect("flow_bytes_max", "4000000");
  expect("elephants", "1");
  expect("elephant_share", "0.888887");
  expect("fan_in_max", "1");
  expect("needs_ordered", "true");
  expect("needs_lossless", "false");
  expect("burst_source", "");
  expect("flows_concurrent_max", "");
  // Paths are those between the hosts: a single flow of 8 bytes.
  expect("path_max_mean", "8");
  expect("host_entropy_bits_min", "0");
  expect("link_util_scale_up", "0.4");  // 4 MB in 1 ms at 10 GB/s
}

TEST(TrafficColumns, NothingSentHasNoFiguresButCounts) {
  const Setting s;
  Row row;
  add_traffic_columns(row, part({message(0, 1, 0)}), s.setting);
  const std::string line = csv_line(row);
  EXPECT_EQ(line.find("nan"), std::string::npos) << line;
  EXPECT_EQ(row.get("flows"), "0");
  EXPECT_EQ(row.get("messages"), "0");
  EXPECT_EQ(row.get("packets"), "0");
  EXPECT_EQ(row.get("fan_in_max"), "0");
  for (const char* column : {"network", "message_bytes_p50", "packet_bytes_max", "flow_bytes_min",
                             "elephant_share", "entropy_bits", "effective_flows", "evenness",
                             "host_entropy_bits_min", "path_max_mean", "link_util", "msgs_per_s"}) {
    EXPECT_EQ(row.get(column), "") << column;
  }
}

TEST(TrafficColumns, PredictedBytesAreNotCalledWire) {
  const Setting s;
  TrafficPart predicted = part({message(0, 2, 4096, Dimension::dp, Network::scale_out)});
  predicted.flow_source = "predicted";
  predicted.recorded = false;
  Row row;
  add_traffic_columns(row, predicted, s.setting);
  EXPECT_EQ(row.get("flow_source"), "predicted");
  EXPECT_EQ(row.get("bytes_wire"), "");
  EXPECT_EQ(row.get("bytes_scale_out"), "");
  EXPECT_EQ(row.get("flow_bytes_max"), "4096");
  EXPECT_NE(row.get("link_rate_source").find("predicted"), std::string_view::npos);
}

TEST(TrafficColumns, WithoutASourceOnlyOperationsAreKnown) {
  const Setting s;
  TrafficPart silent;
  silent.operations = 3;
  Row row;
  add_traffic_columns(row, silent, s.setting);
  EXPECT_EQ(row.get("operations"), "3");
  EXPECT_EQ(row.get("flows"), "");
  EXPECT_EQ(row.get("needs_reliable"), "false");
}

TEST(TrafficColumns, FrequencyOfATimedPart) {
  const Setting s;
  TrafficPart timed = part({message(0, 1, 600), message(0, 1, 400)});
  Message first = message(0, 1, 600), second = message(0, 1, 400);
  first.posted_us = 10;
  first.completed_us = 90;
  second.posted_us = 250;
  second.completed_us = 280;
  timed.timeline = {400, {first, second}, true};
  Row row;
  add_traffic_columns(row, timed, s.setting);
  EXPECT_EQ(row.get("burst_source"), "posted");
  EXPECT_EQ(row.get("msgs_per_s"), "5000");
  EXPECT_EQ(row.get("gap_p50_us"), "160");
  EXPECT_EQ(row.get("duty_cycle"), "0.5");
  EXPECT_EQ(row.get("duty_cycle_100us"), "0.5");
  EXPECT_EQ(row.get("duty_cycle_1ms"), "");
  EXPECT_EQ(row.get("peak_to_mean"), "2.4");
  EXPECT_EQ(row.get("flows_concurrent_max"), "1");
}

}  // namespace
}  // namespace weft
