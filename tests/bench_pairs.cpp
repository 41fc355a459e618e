// weft-pairs: who meets whom, the file of pairs, the options, the matrix.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/pair_options.hpp"
#include "bench/pair_table.hpp"
#include "bench/pair_trial.hpp"
#include "bench/tournament.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

void expect_disjoint(const PairRound& round) {
  std::set<Rank> busy;
  for (const RankPair& pair : round) {
    EXPECT_NE(pair.a, pair.b);
    EXPECT_TRUE(busy.insert(pair.a).second) << pair.a << " twice in a round";
    EXPECT_TRUE(busy.insert(pair.b).second) << pair.b << " twice in a round";
  }
}

TEST(Tournament, EveryPairMeetsOnceInRoundsOfDisjointPairs) {
  for (int n = 1; n <= 17; ++n) {
    SCOPED_TRACE(n);
    const std::vector<PairRound> rounds = tournament(n);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(n == 1 ? 0 : n % 2 == 0 ? n - 1 : n));
    std::map<std::pair<Rank, Rank>, int> met;
    for (const PairRound& round : rounds) {
      EXPECT_EQ(round.size(), static_cast<std::size_t>(n / 2));
      expect_disjoint(round);
      for (const RankPair& pair : round) {
        EXPECT_TRUE(0 <= pair.a && pair.a < pair.b && pair.b < n) << pair.a << ' ' << pair.b;
        ++met[{pair.a, pair.b}];
      }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(n * (n - 1) / 2));
    for (const auto& [pair, times] : met) {
      EXPECT_EQ(times, 1) << pair.first << ' ' << pair.second;
    }
  }
}

TEST(Tournament, ChosenPairsArePackedIntoDisjointRounds) {
  const std::vector<PairRound> rounds = disjoint_rounds({{0, 1}, {1, 2}, {3, 2}, {0, 3}});
  ASSERT_EQ(rounds.size(), 2u);
  for (const PairRound& round : rounds) expect_disjoint(round);
  EXPECT_EQ(rounds[0], (PairRound{{0, 1}, {3, 2}}));
  EXPECT_EQ(rounds[1], (PairRound{{1, 2}, {0, 3}}));
}

std::string error_of_pairs(const std::string& text, int ranks = 4) {
  try {
    parse_pairs(text, "p.txt", ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "(no error)";
}

TEST(PairsFile, HasTwoRanksALineAndComments) {
  const auto pairs = parse_pairs("# all to 0\n\n 1 0 \n0\t2 # the far one\n", "p.txt", 4);
  EXPECT_EQ(pairs, (std::vector<RankPair>{{1, 0}, {0, 2}}));
}

TEST(PairsFile, ErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> wrong[] = {{"0 1\n2\n", "p.txt, line 2"},
                                                       {"0 1 2\n", "no pair"},
                                                       {"0 4\n", "p.txt, line 1"},
                                                       {"0 -1\n", "p.txt, line 1"},
                                                       {"\n1 1\n", "p.txt, line 2"},
                                                       {"0 x\n", "'x'"},
                                                       {"0 1\n2 3\n1 0\n", "p.txt, line 3"},
                                                       {"0 1\n1 0\n", "line 1 already"},
                                                       {"# nothing\n", "p.txt: no pair in it"}};
  for (const auto& [text, part] : wrong) {
    const std::string message = error_of_pairs(text);
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks " << part;
  }
}

PairOptions parsed_pairs(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "weft-pairs");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  PairOptions options;
  EXPECT_TRUE(parse_pair_options(static_cast<int>(argv.size()), argv.data(), options, false));
  return options;
}

TEST(PairOptions, DefaultsAndSharedOnes) {
  const PairOptions plain = parsed_pairs({});
  EXPECT_EQ(plain.common.sizes, (std::vector<Bytes>{8, 4096, 65536, 1 << 20}));
  EXPECT_EQ(plain.common.transports, (std::vector<std::string>{"mpi", "shm"}));
  EXPECT_FALSE(plain.common.transports_given);
  const PairOptions given = parsed_pairs({"--sizes", "8:64:x8", "--transport", "shm", "--rounds=3",
                                          "--max-time", "0.01", "--hot", "--one-at-a-time"});
  EXPECT_EQ(given.common.sizes, (std::vector<Bytes>{8, 64}));
  EXPECT_TRUE(given.common.transports_given && given.common.hot && given.one_at_a_time);
  EXPECT_EQ(given.rounds, 3);
  EXPECT_LE(given.common.min_time, 0.01) << "a short run was asked for";
}

TEST(PairOptions, ErrorsNameTheProgram) {
  for (const auto& [argument, part] : {std::pair{"--frobnicate", "weft-pairs --help"},
                                       {"--sizes=6", "multiple of 4"},
                                       {"--sizes=0", "1 byte at least"},
                                       {"--window=0", "--window"},
                                       {"--zero", "weft-dp-gradsync"}}) {
    try {
      parsed_pairs({argument});
      ADD_FAILURE() << argument << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(PairOptions, WindowsOfLongMessagesAreShort) {
  PairOptions options;
  EXPECT_EQ(window_of(options, 8), 64);
  EXPECT_EQ(window_of(options, 1 << 20), 64);
  EXPECT_EQ(window_of(options, Bytes{16} << 20), 4);
  EXPECT_EQ(window_of(options, Bytes{1} << 30), 2);
  options.window = 1;
  EXPECT_EQ(window_of(options, Bytes{1} << 30), 1);
}

TEST(PairBuffers, AWrongByteAnywhereIsFound) {
  for (const bool hot : {false, true}) {
    const PairShape shape{12, 3, 2, hot};
    Arena arena(MemorySpace::host, PairBuffers::bytes(shape));
    PairBuffers buffers(shape, arena);
    buffers.fill(4, 5);
    buffers.poison();
    EXPECT_NE(buffers.check(0, 4, 5), "") << "nothing has arrived";
    for (int set = 0; set < 2; ++set) {
      for (int m = 0; m < 3; ++m) {
        std::copy_n(buffers.out(set, m).data, 12, buffers.in(set, m).data);
      }
      EXPECT_EQ(buffers.check(set, 4, 5), "");
    }
    EXPECT_NE(buffers.check(0, 5, 4), "") << "of another pair";
    buffers.in(1, 2).data[11] ^= std::byte{1};
    EXPECT_EQ(buffers.check(0, 4, 5), "");
    EXPECT_NE(buffers.check(1, 4, 5).find("byte 8 of message"), std::string::npos);
  }
}

TEST(PairResult, SurvivesPacking) {
  PairResult result;
  result.from = 2;
  result.to = 5;
  result.why = "a byte";
  result.summary.p50 = 1.5;
  result.stop_reason = "precision";
  result.posted = 77;
  result.samples = {{0, 2, 1, 2, true, 1}, {1, 2, 3, 4.5, true, 1}};
  const PairResult back = PairResult::unpacked(result.packed(true));
  EXPECT_EQ(std::tuple(back.from, back.to, back.why, back.stop_reason, back.posted),
            std::tuple(2, 5, std::string("a byte"), std::string("precision"), 77));
  EXPECT_EQ(back.summary.p50, 1.5);
  ASSERT_EQ(back.samples.size(), 2u);
  EXPECT_EQ(back.samples[1].end_us, 4.5);
  EXPECT_TRUE(PairResult::unpacked(result.packed(false)).samples.empty());
}

Row latency_row(int from, int to, double us) {
  Row row;
  row.set("transport", "shm");
  row.set("size", 8);
  row.set("test", "latency");
  row.set("peer_from", from);
  row.set("peer_to", to);
  row.set("t_p50_us", us);
  row.set("verified", true);
  return row;
}

TEST(PairTables, MatrixWithWorstMedianAndBest) {
  const std::string text = pair_tables(
      {latency_row(0, 1, 1), latency_row(1, 0, 3), latency_row(0, 1, 2), latency_row(0, 1, 30)}, 2);
  for (const char* part : {"latency of 8 B by shm, us", "from\\to", "worst 3.000 us (1 -> 0)",
                           "median 2.500 us", "best 2.000 us (0 -> 1)", "verified"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace weft
