// What every run has around its measurements: launch id, files with provenance and status, the
// watchdog, and one way to end.
//
//   RunFrame frame(options, bootstrap);
//   Watchdog watchdog = frame.watch(options.timeout, activity);   // a member declared last
//   return frame.to_the_end(timeout, [&] { frame.open_files(...); ...; return verdict; });
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/affinity.hpp"
#include "bench/last_word.hpp"
#include "bench/options.hpp"
#include "bench/provenance.hpp"
#include "bench/row_writer.hpp"
#include "bench/watchdog.hpp"

namespace weft {

/// How a run ended that could go on to its end.
struct Ending {
  ExitCode code = ExitCode::ok;
  std::string why{};
};

class RunFrame {
 public:
  /// Collective.
  RunFrame(const Options& options, Bootstrap& bootstrap);

  const std::string& launch_id() const { return launch_id_; }
  /// Rank 0's; null on the others.
  RowWriter* writer() { return writer_.get(); }

  /// A watchdog that ends the run; `activity` is asked on its thread and must live as long.
  Watchdog watch(double seconds, std::function<std::string()> activity);

  /// What is known of hosts and machine. Collective.
  RunFacts gather_facts(int threads_per_rank);
  /// Collective. Opens the files and writes the provenance; from then on their status tells how the
  /// run ended.
  void open_files(const OutputPaths& paths, const RunFacts& facts);

  /// Does the run; its files get their last word however it ends. Errors are printed once; those
  /// that the other ranks cannot be told of end the process.
  ExitCode to_the_end(const std::function<Ending()>& run);

 private:
  const Options& options_;
  Bootstrap& bootstrap_;
  LastWord last_word_;
  std::string launch_id_;
  std::unique_ptr<RowWriter> writer_;
};

/// Where the rows go by the options; the default folder is made, one that the user names must
/// exist, so that a slip of the pen is seen. `program` is its name without "weft-".
OutputPaths output_paths(const Options& options, std::string_view program);
/// Those that are written, for the reader.
std::vector<std::string> named_files(const OutputPaths& paths);

/// Prints how ranks are bound where that spoils times. Ranks that may move are said in the rows
/// only: that is how every launcher starts them.
void warn_of_binding(const CpuShare& cpus);

/// "weft: error: ...", by the launcher's first process.
void print_error(std::string_view what);

/// main() around a run: errors that come before it are printed by the launcher's first process.
int report_errors(const std::function<int(bool first)>& run);

}  // namespace weft
