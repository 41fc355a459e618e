// What a person reads at the end: fits the terminal, names everything, hides nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "bench/text_table.hpp"
#include "bench/traffic_sheet.hpp"

namespace weft {
namespace {

constexpr std::size_t kTerminal = 100;

void expect_fits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), kTerminal) << line;
    EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The first line that holds all parts; empty if none does.
std::string line_with(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    bool all = true;
    for (const std::string& part : parts) all = all && contains(line, part);
    if (all) return line;
  }
  return {};
}

Row cell(const char* phase, const char* transport, double p50) {
  Row row;
  row.set("pattern", "tp-allgather");
  row.set("direction", "forward");
  row.set("phase", phase);
  row.set("transport", transport);
  row.set("algorithm", "ring");
  row.set("model", "tiny");
  row.set("dtype", "f32");
  row.set("world", 4);
  row.set("hosts", 1);
  row.set("bytes_logical", std::int64_t{65536});
  row.set("n", 120);
  row.set("t_p50_us", p50);
  row.set("t_ci_low_us", p50 * 0.99);
  row.set("t_ci_high_us", p50 * 1.01);
  row.set("t_max_us", p50 * 2);
  row.set("verified", true);
  return row;
}

TEST(TextTable, AlignsDropsBlankColumnsAndCountsCharacters) {
  TextTable table({{"name"}, {"blank", "us"}, {"time", "us", true}});
  table.add({"µs", "", "1"});
  table.add({"long name", "", "1234"});
  EXPECT_EQ(table.text(),
            "name       time\n"
            "             us\n"
            "---------  ----\n"
            "µs            1\n"
            "long name  1234\n");
  EXPECT_THROW(table.add({"one"}), std::logic_error);
}

TEST(TextTable, Cells) {
  EXPECT_EQ(number_cell(0.00049201), "0.000492");
  EXPECT_EQ(number_cell(0), "0");
  EXPECT_EQ(number_cell(1.23456), "1.235");
  EXPECT_EQ(number_cell(12.3456), "12.35");
  EXPECT_EQ(number_cell(123456.7), "123457");
  EXPECT_EQ(number_cell(std::nan("")), "");
  EXPECT_EQ(percent_cell(0.634), "63%");
  EXPECT_EQ(percent_cell(0.0123), "1.2%");
  EXPECT_EQ(percent_cell(-0.5), "-50%");
  EXPECT_EQ(percent_cell(std::nan("")), "");
}

TEST(TextTable, WrapsAtSpaces) { EXPECT_EQ(wrapped("aa bb cc dd", 6, 2), "aa bb\n  cc\n  dd\n"); }

TEST(Summary, MarksTheFastestAndExplainsPhases) {
  Row gathered = cell("comm", "shm", 10);
  gathered.set("busbw_GBps", 4.9);
  const std::string text = summary(
      {gathered, cell("comm", "mpi", 20), cell("compute", "shm", 30), cell("compute", "mpi", 31)},
      {"a.csv", "a.json"});
  expect_fits(text);
  EXPECT_TRUE(contains(line_with(text, {"comm", "shm"}), "*")) << text;
  EXPECT_FALSE(contains(line_with(text, {"comm", "mpi"}), "*")) << text;
  EXPECT_FALSE(contains(line_with(text, {"compute", "shm"}), "*"))
      << "kernels alone do not compete";
  EXPECT_FALSE(line_with(text, {"compute", "kernels"}).empty());
  EXPECT_TRUE(contains(text, "64 KiB"));
  EXPECT_TRUE(contains(text, "1.0%"));
  EXPECT_TRUE(contains(text, "All cells were verified before they were timed (4)"));
  EXPECT_TRUE(contains(text, "tp-allgather on 4 ranks, 1 host, tiny, f32, forward"));
  EXPECT_TRUE(contains(text, "a.csv") && contains(text, "a.json"));
  EXPECT_FALSE(contains(text, "hidden")) << "a blank column";
}

TEST(Summary, SaysWhatWasNotRunOnceAReason) {
  std::vector<Row> rows{cell("comm", "mpi", 10)};
  for (int i = 0; i < 6; ++i) {
    Row skipped = cell("comm", "shm", std::nan(""));
    skipped.set("verified", "");
    skipped.set("size", std::int64_t{4096} << i);
    skipped.set("skip_reason", "shm needs 2 GiB, free 1 GiB in /dev/shm");
    rows.push_back(skipped);
  }
  const std::string text = summary(rows, {});
  expect_fits(text);
  EXPECT_EQ(text.find("needs 2 GiB"), text.rfind("needs 2 GiB")) << text;
  EXPECT_TRUE(contains(text, "Not run: ") && contains(text, "and 2 more"));
  EXPECT_TRUE(contains(text, "All cells were verified")) << text;
}

TEST(Summary, WrongResultsHaveNoTimes) {
  Row bad = cell("comm", "shm", 1.5);
  bad.set("verified", false);
  bad.set("skip_reason", "rank 1 byte 0 differs");
  const std::string text = summary({bad, cell("comm", "mpi", 20)}, {});
  EXPECT_TRUE(contains(text, "WRONG RESULTS in 1 of 2"));
  EXPECT_TRUE(contains(text, "rank 1 byte 0 differs"));
  EXPECT_FALSE(contains(text, "1.500")) << text;
  EXPECT_FALSE(contains(line_with(text, {"comm", "mpi"}), "*")) << "a wrong cell is no competitor";
}

TEST(Summary, UncheckedAndNoisyCellsAreSaid) {
  Row unchecked = cell("comm", "shm", 10);
  unchecked.set("verified", "");
  unchecked.set("noise", 1);
  const std::string text = summary({unchecked, cell("comm", "mpi", 20)}, {});
  EXPECT_TRUE(contains(text, "1 of 2 cells were verified"));
  EXPECT_TRUE(contains(text, "noisy"));
}

TEST(Summary, WhatWasLostAndSentAgain) {
  std::vector<Row> rows;
  for (int i = 0; i < 7; ++i) {
    rows.push_back(cell("comm", "verbs", 10));
    rows.back().set("size", std::int64_t{4096} << i);
    rows.back().set("retransmits", i == 6 ? 0 : 10 + i);
    rows.back().set("discards", i == 2 ? 5 : 0);
  }
  const std::string text = summary(rows, {});
  expect_fits(text);
  EXPECT_TRUE(contains(text, "sent again or dropped in 6 of 7 cells")) << text;
  EXPECT_TRUE(contains(text, "times include that")) << text;
  EXPECT_FALSE(line_with(text, {"ring f32 4 KiB: 10 retransmissions"}).empty()) << text;
  EXPECT_TRUE(contains(text, "5 packets")) << text;
  EXPECT_TRUE(contains(text, "and 2 more")) << text;
  for (Row& row : rows) {
    row.set("retransmits", 0);
    row.set("discards", "");  // unknown
  }
  EXPECT_FALSE(contains(summary(rows, {}), "sent again"));
}

TEST(Summary, NothingRun) {
  EXPECT_EQ(summary({}, {}), "Nothing was run.\n");
  Row skipped;
  skipped.set("phase", "comm");
  skipped.set("skip_reason", "no");
  EXPECT_TRUE(contains(summary({skipped}, {}), "Nothing was run."));
}

TEST(Summary, WideTablesStillFit) {
  std::vector<Row> rows;
  for (const char* direction : {"forward", "backward"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      Row row = cell("overlap", "verbs", 1234567);
      row.set("direction", direction);
      row.set("dtype", dtype);
      row.set("algorithm", "hierarchical");
      row.set("hidden_share", 0.5);
      row.set("algbw_GBps", 100.25);
      row.set("busbw_GBps", 187.5);
      rows.push_back(row);
    }
  }
  const std::string text = summary(rows, {});
  expect_fits(text);
  EXPECT_FALSE(line_with(text, {"bf16, backward"}).empty()) << "a table for each, with a title\n"
                                                            << text;
}

TEST(Summary, RowsAreInOrderWhateverTheOrderOfMeasurement) {
  std::vector<Row> rows;
  for (std::int64_t size : {65536, 4096, 1048576}) {
    rows.push_back(cell("comm", "mpi", 10));
    rows.back().set("size", size);
  }
  rows.push_back(cell("compute", "mpi", 10));
  const std::string text = summary(rows, {});
  EXPECT_LT(text.find("\ncompute"), text.find("\ncomm "));
  EXPECT_LT(text.find(" 4 KiB"), text.find(" 64 KiB  mpi", text.find("\ncomm ")));
  EXPECT_LT(text.find(" 64 KiB  mpi", text.find("\ncomm ")), text.find(" 1 MiB"));
}

TrafficLine ring_line() {
  TrafficLine line;
  line.pattern = "tp-allgather";
  line.dimension = "tp";
  line.direction = "forward";
  line.transport = "shm";
  line.algorithm = "ring";
  line.who = "each of 4 ranks -> 3 peers";
  line.network = "scale_up";
  line.collective = "all_gather x1";
  line.operations = 1;
  line.bytes_per_operation = 201326592;
  line.flows_per_sender = 3;
  line.flow_p50 = line.flow_max = 50331648;
  line.packets = 12288;
  line.packet_sizes = "4096 x 12288";
  line.fan_in = 3;
  line.effective_flows[0] = 12;
  line.effective_flows[1] = 48;
  line.effective_flows[2] = 192;
  line.hidden_share = std::nan("");
  line.utilisation = 0.83;
  line.needs = "reliable, ordered";
  line.flow_source = "recorded";
  return line;
}

TEST(TrafficSheet, TellsEverythingAndFits) {
  TrafficLine second = ring_line();
  second.direction = "backward";
  second.algorithm = "hierarchical";
  second.needs = "reliable, ordered, exactly once";
  second.hidden_share = 0.5;
  const std::string text = traffic_sheet({ring_line(), second}, 4096);
  expect_fits(text);
  for (const char* part : {"tp-allgather", "each of 4 ranks -> 3 peers", "scale_up",
                           "all_gather x1", "192 MiB", "48 MiB", "12288", "4096 x 12288", "192",
                           "83%", "50%", "exactly once", "recorded", "4096 B"}) {
    EXPECT_TRUE(contains(text, part)) << part << " is not in\n" << text;
  }
}

TEST(TrafficSheet, BlankWhereUnknown) {
  TrafficLine line;
  line.pattern = "pp-sendrecv";
  line.collective = "send/recv x1";
  line.hidden_share = line.utilisation = std::nan("");
  const std::string text = traffic_sheet({line}, 1024);
  EXPECT_FALSE(contains(text, "nan"));
  EXPECT_FALSE(contains(text, "0 B"));
  EXPECT_TRUE(contains(traffic_sheet({}, 4096), "none"));
}

}  // namespace
}  // namespace weft
