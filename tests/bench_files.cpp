// Files of a run: appending, torn lines, full disks, other schemas, several writers.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/row_text.hpp"
#include "bench/row_writer.hpp"
#include "patterns/error.hpp"
#include "tests/bench_row_samples.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

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
  const std::vector<std::string> hosts{"h0", "h1"};
  const QueuePairs pairs{{{0, 1, 3},
                          {.rank = 0,
                           .peer = 1,
                           .index = 3,
                           .device = "rxe0:1",
                           .address = "10.0.0.1",
                           .peer_address = "10.0.0.2",
                           .number = 0x11,
                           .peer_number = 0x12,
                           .udp_source_port = 49459,
                           .path_mtu = 4096,
                           .sent = {.messages = 3, .payload = 8192, .posted = 8216, .packets = 4},
                           .read = {}}}};
  writer.write_flows("c,1", {std::vector{flow}, hosts, "recorded", {}});
  writer.write_flows("c2", {std::vector{flow}, hosts, "recorded", pairs});
  writer.write_samples("c1", {{7, 1, 0.25, 1234567.5, false}});
  const auto flows = lines_of(paths.flows);
  ASSERT_EQ(flows.size(), 3u);
  EXPECT_EQ(flows[0],
            "launch_id,cell_id,source,destination,source_host,destination_host,channel,kind,"
            "dimension,network,messages,"
            "bytes,flow_source,source_address,destination_address,udp_source_port,"
            "source_queue_pair,destination_queue_pair,device");
  EXPECT_EQ(flows[1], "l1,\"c,1\",0,1,h0,h1,3,control,tp,scale_up,2,8192,recorded,,,,,,");
  EXPECT_EQ(flows[2],
            "l1,c2,0,1,h0,h1,3,control,tp,scale_up,2,8192,recorded,10.0.0.1,10.0.0.2,49459,17,18,"
            "rxe0:1");
  const auto samples = lines_of(paths.samples);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0], "launch_id,cell_id,iteration,rank,start_us,end_us,valid,attempt");
  EXPECT_EQ(samples[1], "l1,c1,7,1,0.250,1234567.500,false,1");
  EXPECT_EQ(slurp(paths.samples + ".provenance.jsonl"), "{\"a\":1}\n");
}

TEST_F(Files, QueuePairs) {
  const OutputPaths paths{.queue_pairs = path("q.csv")};
  RowWriter writer(paths, "l1", "{}");
  QueuePairFacts pair;
  pair.rank = 1;
  pair.peer = 0;
  pair.address = "fe80::1";
  pair.number = 5;
  pair.sent.payload = 10;
  writer.write_queue_pairs("c", {{{1, 0, 0}, pair}}, {"h0", "h1"});
  const auto lines = lines_of(paths.queue_pairs);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(
      lines[0],
      "launch_id,cell_id,source,destination,source_host,destination_host,channel,device,"
      "source_address,destination_address,udp_source_port,source_queue_pair,"
      "destination_queue_pair,path_mtu,messages,payload_bytes,posted_bytes,packets,frame_bytes");
  EXPECT_EQ(lines[1], "l1,c,1,0,h1,h0,0,,fe80::1,,,5,0,0,0,10,0,0,");  // no port: unknown
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

}  // namespace
}  // namespace weft
