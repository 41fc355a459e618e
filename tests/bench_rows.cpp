// Rows as text, and where they come from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "bench/provenance.hpp"
#include "bench/row_text.hpp"
#include "tests/bench_row_samples.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

TEST(RowColumns, HoldTheFixedNamesInTheirOrder) {
  const char* fixed =
      "schema launch_id cell_id pattern dimension direction phase transport algorithm model dtype "
      "space size seq micro_batch "
      "micro_batches layers options cache world tp pp dp ep cp hosts cores_per_rank binding sync "
      "noise bytes_logical bytes_wire "
      "bytes_scale_up bytes_scale_out mem_peak_bytes n late t_first_us t_min_us t_p50_us t_p95_us "
      "t_p99_us t_max_us t_mean_us "
      "t_stddev_us t_ci_low_us t_ci_high_us algbw_GBps busbw_GBps wire_GBps copy_limit_GBps "
      "link_util link_util_scale_up "
      "link_util_scale_out link_rate_source network operations messages message_bytes_p50 packets "
      "packet_bytes_p50 "
      "packet_bytes_max flows flow_bytes_p50 flow_bytes_max flow_source fan_in_max "
      "flows_concurrent_max entropy_bits "
      "effective_flows evenness path_max_mean path_entropy msgs_per_s duty_cycle peak_to_mean "
      "burst_source needs_reliable "
      "needs_ordered needs_lossless exposed_us hidden_share bubble_us compute_slowdown verified "
      "skip_reason";
  std::istringstream names(fixed);
  auto next = columns().begin();
  for (std::string name; names >> name;) {
    next = std::find(next, columns().end(), name);
    ASSERT_NE(next, columns().end()) << name << " is missing or out of order";
  }
  EXPECT_EQ(std::set(columns().begin(), columns().end()).size(), columns().size());
}

TEST(RowColumns, AreAllExplainedInTheirOrder) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path();
  const std::string schema = slurp((root / "results/SCHEMA.md").string());
  ASSERT_FALSE(schema.empty());
  EXPECT_NE(schema.find(std::string(kSchema)), std::string::npos);
  std::size_t place = 0;
  for (std::string_view column : columns()) {
    place = schema.find("| `" + std::string(column) + "` |", place);
    ASSERT_NE(place, std::string::npos)
        << column << " is missing or out of order in results/SCHEMA.md";
  }
}

TEST(RowValues, NumbersHaveSixDigitsAndAPoint) {
  const auto text = [](double value) {
    Row row;
    row.set("t_p50_us", value);
    return std::string(row.get("t_p50_us"));
  };
  EXPECT_EQ(text(12.5), "12.5");
  EXPECT_EQ(text(1.0 / 3), "0.333333");
  EXPECT_EQ(text(1234567.8), "1234570");
  EXPECT_EQ(text(1e9), "1000000000");
  EXPECT_EQ(text(-0.0), "0");
  EXPECT_EQ(text(1.25e-7), "1.25e-07");
  EXPECT_EQ(text(std::nan("")), "");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity()), "");
}

TEST(RowValues, SetGetAndBlank) {
  Row row;
  EXPECT_EQ(row.get("world"), "");
  EXPECT_TRUE(std::isnan(row.number("world")));
  row.set("world", 4);
  row.set("bytes_logical", std::int64_t{1} << 40);
  row.set("verified", false);
  row.set("model", "1e3");
  EXPECT_EQ(row.number("world"), 4);
  EXPECT_EQ(row.get("bytes_logical"), "1099511627776");
  EXPECT_EQ(row.get("verified"), "false");
  EXPECT_TRUE(row.numeric("world"));
  EXPECT_TRUE(row.numeric("verified"));
  EXPECT_FALSE(row.numeric("model"));
  row.set("world", "");
  EXPECT_EQ(row.get("world"), "");
  EXPECT_THROW(row.set("wrold", 1), std::logic_error);
}

TEST(RowValues, CsvQuotesAndStaysOneLine) {
  Row row;
  row.set("skip_reason", "needs 2 GiB, \"free\" 1 GiB\non h1");
  const std::string line = csv_line(row);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_TRUE(line.ends_with(",\"needs 2 GiB, \"\"free\"\" 1 GiB on h1\"\n")) << line;
  EXPECT_EQ(csv_cell("a b"), "a b");
  EXPECT_EQ(csv_cell(" a"), "\" a\"");
}

TEST(RowValues, JsonHasTypesAndNulls) {
  Row row = sample_row();
  row.set("model", "0012");
  row.set("host_names", "bad\xff");
  const Json object = Json::parse(json_object(row));
  EXPECT_EQ(object["world"], 4);
  EXPECT_EQ(object["t_p50_us"], 12.5);
  EXPECT_EQ(object["verified"], true);
  EXPECT_EQ(object["model"], "0012");
  EXPECT_TRUE(object["link_util"].is_null());
  EXPECT_EQ(object.size(), columns().size());
}

TEST(Provenance, IsOneLineOfJsonWithTheFacts) {
  ::setenv("WEFT_TEST_VALUE", "a\"b\n\xff", 1);
  ::setenv("SLURM_JWT", "secret-value", 1);
  ::setenv("UNRELATED_TEST_VALUE", "x", 1);
  RunFacts facts;
  facts.command_line = {"weft-tp-allgather", "--tp", "2"};
  facts.launch_id = "abc";
  facts.mpi_library = "MPICH Version: 4.0.2";
  facts.hosts = {"h1", "h1"};
  facts.inventory = {HostInventory{.host = "h1",
                                   .cpu = "cpu",
                                   .kernel = "6.1",
                                   .cores = 2,
                                   .numa_nodes = 0,
                                   .cpu_quota = 0,
                                   .memory = 0,
                                   .last_level_cache = 0,
                                   .interfaces = {{"eth0", 0, "unknown: -1", -1}}}};
  const std::string text = provenance_json(facts);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("secret-value"), std::string::npos);
  const Json object = Json::parse(text);
  EXPECT_EQ(object["launch_id"], "abc");
  EXPECT_EQ(object["command_line"], (std::vector<std::string>{"weft-tp-allgather", "--tp", "2"}));
  EXPECT_EQ(object["libraries"]["mpi"], "MPICH Version: 4.0.2");
  EXPECT_EQ(object["hosts"][0]["cores"], 2);
  EXPECT_TRUE(object["hosts"][0]["numa_nodes"].is_null());
  EXPECT_TRUE(object["hosts"][0]["interfaces"][0]["link_gbps"].is_null());
  EXPECT_TRUE(object["environment"].contains("WEFT_TEST_VALUE"));
  EXPECT_FALSE(object["environment"].contains("UNRELATED_TEST_VALUE"));
  EXPECT_TRUE(std::regex_match(object["time_utc"].get<std::string>(),
                               std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")));
}

TEST(Provenance, TimesAreUtcInAnyZone) {
  ::setenv("TZ", "Asia/Kolkata", 1);
  ::tzset();
  const std::string india = utc_now();
  ::unsetenv("TZ");
  ::tzset();
  EXPECT_EQ(india.substr(0, 13), utc_now().substr(0, 13));
}

TEST(Provenance, LaunchIdsDifferAndAreNoNumbers) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = make_launch_id();
    EXPECT_TRUE(std::regex_match(id, std::regex("[a-f][0-9a-f]{15}"))) << id;
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000u);
}

}  // namespace
}  // namespace weft
