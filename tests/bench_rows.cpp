// Rows and their files: formats, appending, torn lines, full disks, other schemas.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/provenance.hpp"
#include "bench/row.hpp"
#include "bench/row_text.hpp"
#include "bench/row_writer.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

std::string slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(slurp(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::size_t commas(const std::string& line) {
  return static_cast<std::size_t>(std::count(line.begin(), line.end(), ','));
}

Row sample_row(int world = 4) {
  Row row;
  row.set("schema", kSchema);
  row.set("pattern", "tp-allgather");
  row.set("world", world);
  row.set("t_p50_us", 12.5);
  row.set("verified", true);
  return row;
}

class Files : public testing::Test {
 protected:
  Files() { std::filesystem::create_directories(folder_); }
  ~Files() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  template <class Run>
  Error error_of(Run&& run) {
    try {
      run();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ExitCode::ok, ""};
  }

  std::string folder_ = testing::TempDir() + "weft_rows_" +
                        testing::UnitTest::GetInstance()->current_test_info()->name();
};

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

TEST_F(Files, CsvIsAppendedAndKeepsOneHeader) {
  const OutputPaths paths{.csv = path("a.csv"), .json = {}, .flows = {}, .samples = {}};
  {
    RowWriter first(paths, "l1", R"({"launch_id":"l1"})");
    first.write(sample_row());
    EXPECT_EQ(lines_of(paths.csv).size(), 2u)
        << "the row must be in the file before the writer ends";
    EXPECT_EQ(first.rows(), 1);
  }
  RowWriter second(paths, "l2", R"({"launch_id":"l2"})");
  second.write(sample_row());
  const auto lines = lines_of(paths.csv);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0] + "\n", csv_header());
  EXPECT_EQ(commas(lines[1]), columns().size() - 1);
  const auto provenance = lines_of(paths.csv + ".provenance.jsonl");
  ASSERT_EQ(provenance.size(), 2u);
  EXPECT_EQ(Json::parse(provenance[1])["launch_id"], "l2");
}

TEST_F(Files, TornLastLineIsClosed) {
  const OutputPaths paths{.csv = path("a.csv"), .json = {}, .flows = {}, .samples = {}};
  std::ofstream(paths.csv) << csv_header() << "weft-1,dead,ha";
  RowWriter(paths, "l", "{}").write(sample_row());
  const auto lines = lines_of(paths.csv);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], "weft-1,dead,ha");
}

TEST_F(Files, TornHeaderIsReplaced) {
  const OutputPaths paths{.csv = path("a.csv"), .json = {}, .flows = {}, .samples = {}};
  std::ofstream(paths.csv) << "schema,launch";
  RowWriter(paths, "l", "{}").write(sample_row());
  EXPECT_EQ(lines_of(paths.csv)[0] + "\n", csv_header());
  EXPECT_EQ(lines_of(paths.csv).size(), 2u);
}

TEST_F(Files, OtherSchemaIsRefusedAndLeftAlone) {
  const OutputPaths paths{.csv = path("a.csv"), .json = {}, .flows = {}, .samples = {}};
  for (const std::string text :
       {"schema,launch_id,world\nweft-0,l,4\n", "name,value\na,1\n", "hello"}) {
    std::ofstream(paths.csv) << text;
    const Error error = error_of([&] { RowWriter(paths, "l", "{}"); });
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find(std::string(kSchema)), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("--csv"), std::string::npos) << error.what();
    EXPECT_EQ(slurp(paths.csv), text);
  }
  std::ofstream(paths.csv) << "schema,launch_id,world\nweft-0,l,4\n";
  EXPECT_NE(std::string(error_of([&] { RowWriter(paths, "l", "{}"); }).what()).find("weft-0"),
            std::string::npos);
}

TEST_F(Files, UnwritablePathsNamePathReasonAndCure) {
  for (const std::string& bad : {path("no/such/folder/a.csv"), folder_}) {
    const Error error = error_of(
        [&] { RowWriter({.csv = bad, .json = {}, .flows = {}, .samples = {}}, "l", "{}"); });
    EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    EXPECT_NE(std::string(error.what()).find(bad), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--csv none"), std::string::npos);
  }
  const std::string same = path("x");
  EXPECT_EQ(error_of([&] {
              RowWriter({.csv = same, .json = same, .flows = {}, .samples = {}}, "l", "{}");
            }).code(),
            ExitCode::usage);
}

TEST_F(Files, FullDeviceIsAFailureThatNamesIt) {
  const Error error = error_of(
      [&] { RowWriter({.csv = "/dev/full", .json = {}, .flows = {}, .samples = {}}, "l", "{}"); });
  EXPECT_EQ(error.code(), ExitCode::failed);
  EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos);
}

/// Runs `work` in a child whose files may not grow beyond `limit` bytes: a full disk for everyone.
template <class Work>
void with_full_disk_at(rlim_t limit, Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &small);
    ::_exit(work() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(Files, NoHalfRowIsLeftWhereTheDiskEnds) {
  const OutputPaths paths{.csv = path("a.csv"), .json = path("a.json"), .flows = {}, .samples = {}};
  const auto room =
      static_cast<rlim_t>(csv_header().size() + 2 * csv_line(sample_row()).size() + 9);
  with_full_disk_at(room, [&] {
    RowWriter writer({.csv = paths.csv, .json = {}, .flows = {}, .samples = {}}, "l", "{}");
    writer.write(sample_row());
    writer.write(sample_row());
    try {
      writer.write(sample_row());
    } catch (const Error& error) {
      return error.code() == ExitCode::failed;
    }
    return false;
  });
  EXPECT_EQ(slurp(paths.csv), csv_header() + csv_line(sample_row()) + csv_line(sample_row()));
  with_full_disk_at(static_cast<rlim_t>(2 * json_object(sample_row()).size()), [&] {
    RowWriter writer({.csv = {}, .json = paths.json, .flows = {}, .samples = {}}, "l", "{}");
    writer.write(sample_row());
    try {
      writer.write(sample_row());
    } catch (const Error& error) {
      return error.code() == ExitCode::failed;
    }
    return false;
  });
  EXPECT_EQ(Json::parse(slurp(paths.json))["rows"].size(), 1u);
}

TEST_F(Files, JsonIsCompleteAfterEachRow) {
  const OutputPaths paths{.csv = {}, .json = path("a.json"), .flows = {}, .samples = {}};
  std::ofstream(paths.json) << std::string(100000, 'x');  // replaced
  RowWriter writer(paths, "l1", R"({"weft":"0.1.0"})");
  for (std::size_t rows = 0; rows <= 3; ++rows) {
    const Json document = Json::parse(slurp(paths.json));
    EXPECT_EQ(document["schema"], std::string(kSchema));
    EXPECT_EQ(document["launch_id"], "l1");
    EXPECT_EQ(document["provenance"]["weft"], "0.1.0");
    ASSERT_EQ(document["rows"].size(), rows);
    writer.write(sample_row(static_cast<int>(rows)));
  }
}

TEST_F(Files, JsonOfARunThatStillWritesIsRefused) {
  const OutputPaths paths{.csv = {}, .json = path("a.json"), .flows = {}, .samples = {}};
  RowWriter writer(paths, "l1", "{}");
  EXPECT_EQ(error_of([&] { RowWriter(paths, "l2", "{}"); }).code(), ExitCode::usage);
}

TEST_F(Files, TwoProcessesDoNotShredOneCsv) {
  constexpr int kRows = 200;
  const OutputPaths paths{.csv = path("a.csv"), .json = {}, .flows = {}, .samples = {}};
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    const pid_t child = ::fork();
    if (child == 0) {
      RowWriter writer(paths, "l", "{}");
      for (int i = 0; i < kRows; ++i) writer.write(sample_row(c));
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (pid_t child : children) ::waitpid(child, nullptr, 0);
  const auto lines = lines_of(paths.csv);
  EXPECT_EQ(lines.size(), 3u * kRows + 1);
  for (const std::string& line : lines) EXPECT_EQ(commas(line), columns().size() - 1);
  EXPECT_EQ(lines_of(paths.csv + ".provenance.jsonl").size(), 3u);
}

TEST_F(Files, FlowsAndSamples) {
  const OutputPaths paths{.csv = {}, .json = {}, .flows = path("f.csv"), .samples = path("s.csv")};
  std::ofstream(paths.flows) << "old\n";
  RowWriter writer(paths, "l1", R"({"a":1})");
  const Flow flow{.source = 0,
                  .destination = 1,
                  .channel = 3,
                  .kind = MessageKind::control,
                  .dim = Dimension::tp,
                  .network = Network::scale_up,
                  .messages = 2,
                  .bytes = 8192};
  writer.write_flows("c,1", {flow}, {"h0", "h1"}, "recorded");
  writer.write_samples("c1", {{7, 1, 0.25, 1234567.5, false}});
  const auto flows = lines_of(paths.flows);
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0],
            "launch_id,cell_id,source,destination,source_host,destination_host,channel,kind,"
            "dimension,network,messages,"
            "bytes,flow_source");
  EXPECT_EQ(flows[1], "l1,\"c,1\",0,1,h0,h1,3,control,tp,scale_up,2,8192,recorded");
  const auto samples = lines_of(paths.samples);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0], "launch_id,cell_id,iteration,rank,start_us,end_us,valid");
  EXPECT_EQ(samples[1], "l1,c1,7,1,0.250,1234567.500,false");
  EXPECT_EQ(slurp(paths.samples + ".provenance.jsonl"), "{\"a\":1}\n");
}

TEST_F(Files, NothingAskedForNothingWritten) {
  RowWriter writer({}, "l", "{}");
  writer.write(sample_row());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_EQ(writer.rows(), 1);
}

TEST_F(Files, StatusTellsHowTheRunEnded) {
  const std::string file = path("a.csv.status.json");
  StatusFile status(file, "l1");
  status.running();
  Json now = Json::parse(slurp(file));
  EXPECT_EQ(now["state"], "running");
  EXPECT_TRUE(now["exit_code"].is_null());
  EXPECT_TRUE(now["ended"].is_null());
  status.finish(4, "rank 3 \"silent\"", 12);
  now = Json::parse(slurp(file));
  EXPECT_EQ(now["state"], "incomplete");
  EXPECT_EQ(now["exit_code"], 4);
  EXPECT_EQ(now["why"], "rank 3 \"silent\"");
  EXPECT_EQ(now["rows"], 12);
  EXPECT_EQ(now["launch_id"], "l1");
  status.finish(0, "", 13);
  EXPECT_EQ(Json::parse(slurp(file))["state"], "complete");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1)
      << "temporary files are left";
  StatusFile("", "l1").running();
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
