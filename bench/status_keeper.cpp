#include "bench/status_keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "patterns/error.hpp"

namespace weft {
namespace {

/// Waits until rank 0 has ended, one way or the other. Returns the rank of this host that ended
/// first; -1: none before rank 0, or several at once.
Rank await_end(int alive, const ProgressBoard& board) {
  const std::vector<Descriptor> processes = board.open_processes();
  std::vector<pollfd> watched{{alive, POLLIN, 0}};
  for (const Descriptor& process : processes) watched.push_back({process.get(), POLLIN, 0});
  std::vector<Rank> ended;
  for (;;) {
    const bool first_round = ended.empty();
    if (poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) return -1;
    for (std::size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      if (first_round) ended.push_back(board.ranks()[i - 1]);
      watched[i].fd = -1;  // poll() passes over it
    }
    if (watched[0].revents != 0) return ended.size() == 1 && ended[0] != 0 ? ended[0] : -1;
  }
}

std::string last_word(Rank first, const ProgressBoard& board) {
  std::string doing = "starting";
  for (const RankState& state : board.look()) {
    if (state.rank == std::max(first, 0)) doing = state.activity;
  }
  if (first > 0) {
    return fmt::format(
        "rank {} died while {}, and the launcher ended the others; see what ended it (its own "
        "exit, "
        "a signal, out of memory); rows measured so far are kept",
        first, doing);
  }
  return fmt::format(
      "rank 0 was killed while {}: by a signal, or because the launcher or another rank had died; "
      "rows measured so far are kept",
      doing);
}

[[noreturn]] void keep(int alive, const ProgressBoard& board, StatusFile status) {
  setsid();  // what ends the ranks' process group must not end this one
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  prctl(PR_SET_NAME, "weft-keeper");
  const Rank first = await_end(alive, board);
  char done = 0;
  const bool in_good_order = read(alive, &done, 1) == 1;
  if (!in_good_order && !board.told()) {
    status.finish(static_cast<int>(ExitCode::inconclusive), last_word(first, board), board.rows());
  }
  _exit(0);
}

/// The launcher takes a rank for ended when its descriptors are closed, so the child keeps none.
void close_all_but(int kept) {
  const int devnull = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) dup2(devnull, fd);
  close_range(STDERR_FILENO + 1, static_cast<unsigned>(kept - 1), 0);
  close_range(static_cast<unsigned>(kept + 1), ~0U, 0);
}

}  // namespace

StatusKeeper::StatusKeeper(const ProgressBoard& board, const StatusFile& status) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  Descriptor reading(ends[0]);
  alive_ = Descriptor(ends[1]);
  child_ = fork();
  if (child_ == 0) {
    close_all_but(reading.get());
    keep(reading.get(), board, status);
  }
}

StatusKeeper::~StatusKeeper() {
  if (child_ < 0) return;
  const char done = 1;
  send(alive_.get(), &done, 1, MSG_NOSIGNAL);
  alive_ = Descriptor();
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace weft
