// From a started process to the end of MPI: what is around every run with ranks.
#pragma once

#include <functional>

#include "bench/options.hpp"
#include "patterns/error.hpp"
#include "transports/bootstrap.hpp"

namespace weft {

/// Starts MPI, answers --list-transports or calls `run`, and ends MPI. Where MPI does not come to
/// its end, the ranks are ended with the code that `run` returned: all that it measured is on disk.
ExitCode run_on_ranks(const Options& options, const std::function<ExitCode(Bootstrap&)>& run);

}  // namespace weft
