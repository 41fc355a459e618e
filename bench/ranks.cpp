#include "bench/ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "bench/launch.hpp"
#include "bench/plan.hpp"

namespace weft {
namespace {

constexpr std::chrono::seconds kEnding{10};  // of MPI, when all ranks are there

/// MPI_Finalize of MPICH 4.0 over UCX's tcp was seen to wait for ever, with more ranks than cores.
/// The watchdog is gone by then.
void end_mpi(std::unique_ptr<Bootstrap> bootstrap, ExitCode code) {
  bootstrap->barrier();  // one that still writes its files is not to be ended
  const Rank rank = bootstrap->rank();
  const std::string where = fmt::format("rank {} on {}", rank, bootstrap->hosts()[rank]);
  const std::jthread guard([&](const std::stop_token& ended) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any change;
    if (change.wait_for(lock, ended, kEnding, [&] { return ended.stop_requested(); })) return;
    leave_alone(rank, code,
                fmt::format("weft: warning: {} waited {} s in MPI_Finalize, and is ended; results "
                            "are complete. With another UCX_TLS it may end by itself",
                            where, kEnding.count()));
  });
  bootstrap.reset();
}

}  // namespace

ExitCode run_on_ranks(const Options& options, const std::function<ExitCode(Bootstrap&)>& run) {
  check_open_files();
  auto bootstrap = make_mpi_bootstrap(options.ranks_per_host);
  ExitCode code = ExitCode::ok;
  if (options.list_transports) {
    const std::string text = list_transports_text(*bootstrap);
    if (bootstrap->rank() == 0) fmt::print("{}", text);
  } else {
    code = run(*bootstrap);
  }
  end_mpi(std::move(bootstrap), code);
  return code;
}

}  // namespace weft
