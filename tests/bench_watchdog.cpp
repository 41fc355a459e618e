// The watchdog, the board that ranks see each other on, what is said of a hang, and the keeper that
// has the last word for a rank that died.
#include "bench/watchdog.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/hang_report.hpp"
#include "bench/status_keeper.hpp"

namespace weft {
namespace {

using Condition = RankState::Condition;
using std::chrono::milliseconds;

template <class Ready>
bool within(milliseconds limit, const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(Watchdog, ExpiresOnceBeatsStop) {
  std::atomic<int> expired{0}, pulses{0};
  std::atomic<std::uint64_t> beats{0};
  Watchdog dog(
      0.4, [&](double seconds) { expired += seconds > 0.4; }, [](int) {},
      [&](std::uint64_t seen) {
        ++pulses;
        beats = seen;
      });
  for (int i = 0; i < 20; ++i) {
    dog.beat();
    std::this_thread::sleep_for(milliseconds(30));
  }
  EXPECT_EQ(expired, 0);
  EXPECT_TRUE(within(milliseconds(5000), [&] { return expired == 1; }));
  EXPECT_GT(pulses, 3);
  EXPECT_EQ(beats, 20u);
}

/// Runs `body` in a child of a child; the parent between them ends as soon as the child has begun.
int fate_of_orphan(const std::function<void(int)>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    if (fork() == 0) {
      body(ends[1]);
      _exit(0);
    }
    usleep(300000);
    _exit(0);
  }
  close(ends[1]);
  waitpid(launcher, nullptr, 0);
  char fate = 0;
  EXPECT_EQ(read(ends[0], &fate, 1), 1);
  close(ends[0]);
  return fate;
}

TEST(Watchdog, NoticesThatItsLauncherIsGone) {
  const int fate = fate_of_orphan([](int pipe) {
    const auto tell = [pipe](char fate) { [[maybe_unused]] auto n = write(pipe, &fate, 1); };
    std::atomic<bool> over{false};
    Watchdog dog(
        60, [&](double) { tell('x'); },
        [&](int signal) {
          tell(signal == Watchdog::kLauncherGone ? 'g' : 's');
          over = true;
        });
    within(milliseconds(10000), [&] { return over.load(); });
  });
  EXPECT_EQ(fate, 'g');
}

TEST(ProgressBoard, RanksOfAHostSeeEachOther) {
  auto bootstraps = make_thread_bootstraps(3);
  std::vector<std::thread> ranks;
  std::atomic<int> ready{0}, claims{0};
  for (Rank rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      ProgressBoard board(*bootstraps[static_cast<std::size_t>(rank)]);
      board.mine().beats = static_cast<std::uint64_t>(10 + rank);
      board.pulse("measuring " + std::to_string(rank));
      ++ready;
      EXPECT_TRUE(within(milliseconds(10000), [&] { return ready == 3; }));
      const std::vector<RankState> seen = board.look();
      ASSERT_EQ(seen.size(), 3u);
      EXPECT_EQ(seen[2].rank, 2);
      EXPECT_EQ(seen[2].beats, 12u);
      EXPECT_EQ(seen[2].activity, "measuring 2");
      EXPECT_EQ(seen[2].condition, Condition::alive);
      claims += board.claim_last_word();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(claims, 1);
}

TEST(ProgressBoard, ALongActivityIsCut) {
  ProgressSlot slot{};
  slot.set_activity(std::string(1000, 'x'));
  EXPECT_EQ(slot.activity(), std::string(ProgressSlot::kTextBytes - 1, 'x'));
  slot.set_activity("short");
  EXPECT_EQ(slot.activity(), "short");
}

RankState state(Rank rank, Condition condition, std::uint64_t beats, std::string activity) {
  return {rank, condition, beats, std::move(activity)};
}

TEST(HangReport, NamesTheMissingTheirHostsAndSteps) {
  const HostAnswer a{
      "a",
      {0, 1, 2, 3},
      true,
      {state(0, Condition::alive, 5, "step 'x'"), state(1, Condition::stopped, 4, "step 'w'"),
       state(2, Condition::alive, 5, "step 'x'"), state(3, Condition::alive, 5, "step 'x'")}};
  const HostAnswer b{"b", {4, 5}, false, {}};
  const HostAnswer c{"c", {6}, true, {state(6, Condition::dead, 2, "step 'v'")}};
  const std::string text = hang_report(30.2, {a, b, c});
  EXPECT_TRUE(text.starts_with(
      "no progress for 30 s; missing: ranks 4-5 on b (the host does not answer), "
      "rank 1 on a (stopped; last seen step 'w'), rank 6 on c (dead; last seen step 'v'); "
      "waiting: ranks 0 2-3 on a (step 'x'); "))
      << text;
  EXPECT_NE(text.find("--timeout"), std::string::npos);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(HangReport, WithoutAMissingRankNamesWhoIsBehind) {
  const HostAnswer a{"a",
                     {0, 1, 2},
                     true,
                     {state(0, Condition::alive, 5, "x"), state(1, Condition::alive, 4, "w"),
                      state(2, Condition::alive, 5, "x")}};
  EXPECT_NE(hang_report(3, {a}).find("behind the others: rank 1 on a (w); "), std::string::npos);
  const HostAnswer level{"a", {0}, true, {state(0, Condition::alive, 5, "x")}};
  EXPECT_NE(hang_report(3, {level}).find("none is behind"), std::string::npos);
}

TEST(HangReport, BeginsWithTheCauseOfARankThatGaveUp) {
  const HostAnswer a{"a",
                     {0, 1},
                     true,
                     {state(0, Condition::alive, 5, "x"), state(1, Condition::stopped, 4, "w")}};
  EXPECT_EQ(hang_report("queue pair 0x11: broken; raise it", {a}),
            "queue pair 0x11: broken; raise it; missing: rank 1 on a (stopped; last seen w); "
            "waiting: rank 0 on a (x); rows measured so far are kept");
}

/// A "rank 0" in a process of its own, with a status file and a keeper; returns what the file says
/// when `end` has ended it.
nlohmann::json status_after(const std::function<void(StatusFile&)>& end) {
  std::string folder = (std::filesystem::temp_directory_path() / "weft-keeper-XXXXXX").string();
  mkdtemp(folder.data());
  const std::string path = folder + "/r.csv.status.json";
  const pid_t rank = fork();
  if (rank == 0) {
    auto bootstraps = make_thread_bootstraps(1);
    ProgressBoard board(*bootstraps[0]);
    board.pulse("measuring CELL");
    board.set_rows(7);
    StatusFile status(path, "a0000");
    status.running();
    {
      const StatusKeeper keeper(board, status);
      end(status);
    }
    _exit(0);
  }
  waitpid(rank, nullptr, 0);
  nlohmann::json seen;
  within(milliseconds(3000), [&] {
    seen = nlohmann::json::parse(std::ifstream(path));
    return seen["state"] != "running";
  });
  std::filesystem::remove_all(folder);
  return seen;
}

TEST(StatusKeeper, SpeaksForARankThatWasKilled) {
  const nlohmann::json status = status_after([](StatusFile&) { kill(getpid(), SIGKILL); });
  EXPECT_EQ(status["state"], "incomplete");
  EXPECT_EQ(status["exit_code"], 3);
  EXPECT_EQ(status["rows"], 7);
  const std::string why = status["why"];
  EXPECT_NE(why.find("measuring CELL"), std::string::npos) << why;
}

TEST(StatusKeeper, KeepsSilentAfterAGoodEnd) {
  const nlohmann::json status = status_after([](StatusFile& file) { file.finish(0, "", 9); });
  EXPECT_EQ(status["state"], "complete");
  EXPECT_EQ(status["rows"], 9);
}

}  // namespace
}  // namespace weft
