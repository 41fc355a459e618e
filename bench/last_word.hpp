// How a run ends that cannot go on: one rank tells why, once; the files get it; nobody stays.
#pragma once

#include <optional>
#include <string>

#include "bench/progress_board.hpp"
#include "bench/roll_call.hpp"
#include "bench/row_writer.hpp"
#include "bench/status_keeper.hpp"
#include "patterns/error.hpp"

namespace weft {

class LastWord {
 public:
  explicit LastWord(Bootstrap& bootstrap);

  /// Collective, when the files are open: from now on their status tells how the run ended. Only
  /// ranks of rank 0's host write it; the others may lie on another file system.
  void open(const std::string& status_path, const std::string& launch_id);
  /// A run that ends in good order, or with an error that all ranks know.
  void close(ExitCode code, const std::string& why);
  void set_rows(int rows) { board_.set_rows(rows); }
  /// Does not return once the status is written: the process is about to be ended, and what it
  /// measured after that would contradict the number of rows in the status.
  void nothing_after_it() const;

  /// For the watchdog: this rank lives and does this.
  void pulse(std::uint64_t beats, const std::string& activity);
  /// These end all ranks of the launch, from any thread, with the code that belongs to it. Timed
  /// out: this rank has made no progress for so many seconds, or gave up by itself for `cause`.
  [[noreturn]] void timed_out(double seconds);
  [[noreturn]] void timed_out(const std::string& cause);
  [[noreturn]] void interrupted(int signal, const std::string& activity);

 private:
  /// Whoever is first to come here tells, and asks who is missing.
  std::vector<HostAnswer> ask_who_is_missing();
  [[noreturn]] void end_all(ExitCode code, const std::string& message, bool launcher_lives = true);
  [[noreturn]] void wait_for_the_end(ExitCode code);
  void write_status(int exit_code, const std::string& why);
  void take_word();

  Bootstrap& bootstrap_;
  ProgressBoard board_;
  RollCall roll_call_;
  std::optional<StatusFile> status_;
  std::optional<StatusKeeper> keeper_;  // rank 0 only
};

}  // namespace weft
