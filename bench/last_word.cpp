#include "bench/last_word.hpp"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/hang_report.hpp"
#include "bench/launch.hpp"
#include "bench/watchdog.hpp"
#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{200};       // between two looks whether all is over
constexpr milliseconds kRelay{200};      // a launcher of several processes passes on what it read
constexpr milliseconds kEnding{10000};   // the launcher ends all ranks, also those that are stopped
constexpr double kAsking = 3;            // seconds for the other hosts to answer
constexpr milliseconds kTelling{15000};  // another rank finds out whom it waits for

}  // namespace

LastWord::LastWord(Bootstrap& bootstrap)
    : bootstrap_(bootstrap), board_(bootstrap), roll_call_(bootstrap, board_) {}

void LastWord::open(const std::string& status_path, const std::string& launch_id) {
  const auto& hosts = bootstrap_.hosts();
  const auto rank = static_cast<std::size_t>(bootstrap_.rank());
  if (real_host(hosts[rank]) == real_host(hosts.front())) status_.emplace(status_path, launch_id);
  if (rank != 0) return;
  status_->running();
  keeper_.emplace(board_, *status_);
}

void LastWord::close(ExitCode code, const std::string& why) {
  if (bootstrap_.rank() != 0 || !status_) return;
  write_status(static_cast<int>(code), why);
  keeper_.reset();
}

void LastWord::pulse(std::uint64_t beats, const std::string& activity) {
  board_.mine().beats.store(beats, std::memory_order_relaxed);
  board_.pulse(activity);
  take_word();
}

void LastWord::write_status(int exit_code, const std::string& why) {
  if (status_ && board_.mark_told()) status_->finish(exit_code, why, board_.rows());
}

void LastWord::nothing_after_it() const {
  while (board_.told()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// A rank of another host has told why the run ends; this host may have the files.
void LastWord::take_word() {
  if (const auto word = roll_call_.answer()) write_status(word->exit_code, word->message);
}

std::vector<HostAnswer> LastWord::ask_who_is_missing() {
  if (!board_.claim_last_word()) wait_for_the_end(ExitCode::timed_out);
  auto answers = roll_call_.ask(kAsking);
  if (!answers) wait_for_the_end(ExitCode::timed_out);
  return std::move(*answers);
}

void LastWord::timed_out(double seconds) {
  end_all(ExitCode::timed_out, hang_report(seconds, ask_who_is_missing()));
}

void LastWord::timed_out(const std::string& cause) {
  end_all(ExitCode::timed_out, hang_report(cause, ask_who_is_missing()));
}

void LastWord::interrupted(int signal, const std::string& activity) {
  if (!board_.claim_last_word()) wait_for_the_end(ExitCode::inconclusive);
  const bool launcher_lives = signal != Watchdog::kLauncherGone;
  const std::string by = !launcher_lives
                             ? std::string("because the launcher is gone")
                             : fmt::format("by signal {} ({})", signal, strsignal(signal));
  end_all(ExitCode::inconclusive,
          fmt::format("ended {} while {}; rows measured so far are kept", by, activity),
          launcher_lives);
}

void LastWord::wait_for_the_end(ExitCode code) {
  for (auto waited = kLook; waited < kTelling; waited += kLook) {
    std::this_thread::sleep_for(kLook);
    board_.pulse(board_.mine().activity());
    take_word();
  }
  std::_Exit(static_cast<int>(code));
}

void LastWord::end_all(ExitCode code, const std::string& message, bool launcher_lives) {
  write_status(static_cast<int>(code), message);
  if (!status_) roll_call_.tell({static_cast<int>(code), message});
  say_last(fmt::format("weft: error: {}", message));
  std::this_thread::sleep_for(kRelay);
  std::signal(SIGTERM, SIG_DFL);  // the launcher's way to end ranks
  if (launcher_lives) {
    std::thread([this, code] { bootstrap_.abandon(static_cast<int>(code)); }).detach();
    std::this_thread::sleep_for(kEnding);
  }
  board_.kill_missing();
  std::_Exit(static_cast<int>(code));
}

}  // namespace weft
