// The command line: what is understood, what is refused and in which words.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/bench_command_line.hpp"

namespace weft {
namespace {

TEST(Options, Defaults) {
  const Options options = parsed({});
  EXPECT_EQ(options.transports, (std::vector<std::string>{"mpi", "shm"}));
  EXPECT_FALSE(options.transports_given);
  EXPECT_FALSE(options.layout_given);
  EXPECT_EQ(options.phases.size(), 4u);
  EXPECT_EQ(options.dtypes, std::vector{DType::f32});
  EXPECT_EQ(options.precision, 0.02);
  EXPECT_EQ(options.mtu, 4096);
  EXPECT_TRUE(options.verify);
  EXPECT_FALSE(options.show_plan);
  EXPECT_EQ(options.csv, "");
  EXPECT_EQ(options.command_line, std::vector<std::string>{"program"});
}

TEST(Options, EverythingCommon) {
  const Options o = parsed({"--transport",
                            "shm,mpi",
                            "--transport=verbs",
                            "--algorithm",
                            "ring, direct",
                            "--model",
                            "tiny",
                            "--tp",
                            "2",
                            "--cp=3",
                            "--dp",
                            "4",
                            "--pp",
                            "5",
                            "--ep",
                            "6",
                            "--etp",
                            "1",
                            "--order",
                            "dp-tp-pp-ep-cp",
                            "--seq",
                            "128",
                            "--micro-batch",
                            "2",
                            "--micro-batches",
                            "8",
                            "--layers",
                            "4",
                            "--dtype",
                            "f32,BF16",
                            "--direction",
                            "backward",
                            "--phase",
                            "comm,overlap",
                            "--precision",
                            "0.5%",
                            "--min-time",
                            "0.2",
                            "--max-time",
                            "3.5",
                            "--no-verify",
                            "--threads",
                            "2",
                            "--seed",
                            "18446744073709551615",
                            "--csv",
                            "none",
                            "--json",
                            "j",
                            "--flows",
                            "f",
                            "--samples",
                            "s",
                            "--timeout",
                            "30",
                            "--ranks-per-host",
                            "2",
                            "--mtu",
                            "1024",
                            "--scene",
                            "S4",
                            "--no-bias",
                            "--sequence-parallel",
                            "--keep-gathered"});
  EXPECT_EQ(o.transports, (std::vector<std::string>{"shm", "mpi", "verbs"}));
  EXPECT_TRUE(o.transports_given);
  EXPECT_EQ(o.algorithms, (std::vector<std::string>{"ring", "direct"}));
  EXPECT_EQ(o.model, "tiny");
  EXPECT_TRUE(o.layout_given);
  EXPECT_EQ(o.layout.tp, 2);
  EXPECT_EQ(o.layout.cp, 3);
  EXPECT_EQ(o.layout.dp, 4);
  EXPECT_EQ(o.layout.pp, 5);
  EXPECT_EQ(o.layout.ep, 6);
  EXPECT_EQ(o.layout.etp, 1);
  EXPECT_EQ(o.layout.order, "dp-tp-pp-ep-cp");
  EXPECT_EQ(o.pattern.seq, 128);
  EXPECT_EQ(o.pattern.micro_batch, 2);
  EXPECT_EQ(o.pattern.micro_batches, 8);
  EXPECT_EQ(o.pattern.layers, 4);
  EXPECT_EQ(o.dtypes, (std::vector{DType::f32, DType::bf16}));
  EXPECT_EQ(o.directions, std::vector{Direction::backward});
  EXPECT_EQ(o.phases, (std::vector{Phase::comm, Phase::overlap}));
  EXPECT_DOUBLE_EQ(o.precision, 0.005);
  EXPECT_DOUBLE_EQ(o.min_time, 0.2);
  EXPECT_DOUBLE_EQ(o.max_time, 3.5);
  EXPECT_FALSE(o.verify);
  EXPECT_EQ(o.threads, 2);
  EXPECT_EQ(o.seed, UINT64_MAX);
  EXPECT_EQ(o.csv + o.json + o.flows + o.samples, "nonejfs");
  EXPECT_DOUBLE_EQ(o.timeout, 30);
  EXPECT_EQ(o.ranks_per_host, 2);
  EXPECT_EQ(o.mtu, 1024);
  EXPECT_EQ(o.scene, "S4");
  EXPECT_FALSE(o.pattern.bias);
  EXPECT_TRUE(o.pattern.sequence_parallel && o.pattern.keep_gathered);
}

TEST(Options, OfOnePattern) {
  const Options data =
      parsed({"--bucket-mib", "2.5", "--zero", "--optimizer", "adam", "--grad-dtype", "bf16"},
             "dp-gradsync");
  EXPECT_DOUBLE_EQ(data.pattern.bucket_mib, 2.5);
  EXPECT_TRUE(data.pattern.zero);
  EXPECT_EQ(data.pattern.optimizer, Optimizer::adam);
  EXPECT_EQ(data.pattern.grad_dtype, DType::bf16);
  EXPECT_EQ(parsed({"--schedule", "gpipe"}, "pp-sendrecv").pattern.schedule,
            PipelineSchedule::gpipe);
  EXPECT_EQ(parsed({"--schedule", "1f1b"}, "pp-sendrecv").pattern.schedule,
            PipelineSchedule::one_f_one_b);
  const Options experts =
      parsed({"--experts", "16", "--top-k", "2", "--skew", "1.2"}, "moe-alltoall");
  EXPECT_EQ(experts.pattern.experts, 16);
  EXPECT_EQ(experts.pattern.top_k, 2);
  EXPECT_DOUBLE_EQ(experts.pattern.skew, 1.2);
  expect_error_with("weft-dp-gradsync, not of weft-tp-allgather", {"--zero"});
  expect_error_with("--keep-gathered", {"--keep-gathered"}, "row-allreduce");
  expect_error_with("choose gpipe, 1f1b", {"--schedule", "zigzag"}, "pp-sendrecv");
}

TEST(Options, UnknownOnesAreNamedWithANearOne) {
  expect_error_with("did you mean --transport?", {"--transprot", "mpi"});
  expect_error_with("did you mean --sizes?", {"--size=8:64:x2"});
  expect_error_with("--help", {"--frobnicate"});
  expect_error_with("unknown option --wire", {"--wire", "f"});
  expect_error_with("unknown option -x", {"-x"});
  expect_error_with("'foo'", {"foo"});
  expect_error_with("'3'", {"--tp", "2", "3"});
  expect_error_with("'shm'", {"--transport", "mpi", "shm"});
}

TEST(Options, BadValuesNameOptionAndText) {
  const std::vector<std::pair<std::string, std::string>> bad{{"--tp", "0"},
                                                             {"--tp", "two"},
                                                             {"--tp", "2.5"},
                                                             {"--tp", "99999999999"},
                                                             {"--tp", "-1"},
                                                             {"--seq", "1e3x"},
                                                             {"--precision", "2"},
                                                             {"--precision", "0"},
                                                             {"--precision", "0,5%"},
                                                             {"--precision", "nan"},
                                                             {"--precision", "%"},
                                                             {"--min-time", "0,2"},
                                                             {"--min-time", "-1"},
                                                             {"--max-time", "inf"},
                                                             {"--timeout", "0"},
                                                             {"--dtype", "f64"},
                                                             {"--dtype", "i32"},
                                                             {"--phase", "all"},
                                                             {"--direction", "sideways"},
                                                             {"--mtu", "12"},
                                                             {"--mtu", "1e9"},
                                                             {"--seed", "-1"},
                                                             {"--inject", "corrupt:1"},
                                                             {"--inject", "burn:1"},
                                                             {"--show-plan", "xml"},
                                                             {"--threads", "0"}};
  for (const auto& [option, text] : bad) {
    const std::string message = error_of({option, text});
    EXPECT_NE(message.find(option), std::string::npos) << option << " " << text << ": " << message;
    EXPECT_NE(message.find(text), std::string::npos) << option << " " << text << ": " << message;
  }
}

TEST(Options, MissingDoubledAndEmptyValues) {
  expect_error_with("--csv lacks its value", {"--csv"});
  expect_error_with("--no-bias: 'maybe'", {"--no-bias=maybe"});
  expect_error_with("--no-bias: '99999999999999999999'", {"--no-bias=99999999999999999999"});
  expect_error_with("--csv lacks its value", {"--csv", "--json", "x"});
  expect_error_with("--seq takes one value", {"--seq", "1", "--seq", "2"});
  expect_error_with("--csv has an empty value", {"--csv", ""});
  expect_error_with("empty name", {"--transport", "mpi,,shm"});
  expect_error_with("--min-time", {"--min-time", "5", "--max-time", "1"});
}

TEST(Options, TimesFollowEachOther) {
  EXPECT_EQ(parsed({"--min-time", "5"}).max_time, 5);
  EXPECT_EQ(parsed({"--max-time", "0.01"}).min_time, 0.01);
}

TEST(Options, Sweeps) {
  const Options options = parsed({"--sizes", "8:32:x2", "--sizes", "1K"});
  EXPECT_EQ(options.sizes, (std::vector<Bytes>{8, 16, 32, 1024}));
  EXPECT_EQ(options.phases, std::vector{Phase::comm});
  expect_error_with("'-8:8:x2'", {"--sizes", "-8:8:x2"});
  expect_error_with("8:1G:x1", {"--sizes", "8:1G:x1"});
  expect_error_with("--model", {"--sizes", "8", "--model", "tiny"});
  expect_error_with("--sequence-parallel", {"--sizes", "8", "--sequence-parallel"});
  expect_error_with("--phase overlap", {"--sizes", "8", "--phase", "comm,overlap"});
  EXPECT_EQ(parsed({"--sizes", " 8:16:x2"}).sizes, (std::vector<Bytes>{8, 16}));
}

TEST(Options, ShowPlan) {
  EXPECT_TRUE(parsed({"--show-plan"}).show_plan);
  EXPECT_FALSE(parsed({"--show-plan"}).show_plan_json);
  EXPECT_TRUE(parsed({"--show-plan", "json"}).show_plan_json);
  const Options options = parsed({"--show-plan", "--tp", "4"});
  EXPECT_TRUE(options.show_plan);
  EXPECT_EQ(options.layout.tp, 4);
}

TEST(Options, BenchmarkArgumentsPassUnread) {
  const Options options = parsed({"--benchmark_filter=a,b", "--tp", "2", "--benchmark_list_tests"});
  EXPECT_EQ(options.benchmark_arguments,
            (std::vector<std::string>{"--benchmark_filter=a,b", "--benchmark_list_tests"}));
  EXPECT_EQ(options.layout.tp, 2);
}

TEST(Options, InjectIsUnderstoodAndHidden) {
  EXPECT_EQ(parsed({"--inject", "corrupt:1:0"}).injection.kind, Injection::Kind::corrupt);
  EXPECT_EQ(parsed({"--inject", "swap:1@result"}).injection.check, "result");
  EXPECT_EQ(parsed({"--inject", "half:0:-17"}).injection.where, -17);
}

}  // namespace
}  // namespace weft
