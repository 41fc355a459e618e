#include "transports/file_limit.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <climits>
#include <filesystem>

namespace weft {
namespace {

/// INT_MAX where they cannot be counted: there is no file left to count them with.
int open_files() {
  std::error_code failed;
  const std::filesystem::directory_iterator files("/proc/self/fd", failed);
  if (failed) return failed == std::errc::too_many_files_open ? INT_MAX : 0;
  return static_cast<int>(std::distance(begin(files), end(files))) - 1;  // less the one that lists
}

}  // namespace

int raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return INT_MAX;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
}

std::string too_few_files(int needed) {
  const int limit = raise_file_limit(), open = open_files();
  if (open <= limit && needed <= limit - open) return {};
  return fmt::format(
      "RLIMIT_NOFILE is {}, {} files are open and {} more are needed; raise it: ulimit -n {} "
      "before "
      "mpiexec, LimitNOFILE= of slurmd, or nofile in /etc/security/limits.conf",
      limit, std::min(open, limit), needed, 1024 * ((needed + std::min(open, limit)) / 1024 + 1));
}

}  // namespace weft
