#include "transports/verbs_objects.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "patterns/error.hpp"

namespace weft {
namespace {

/// "ibv_modify_qp" of "ibv_modify_qp(qp, &attributes, mask)".
std::string_view name_of(std::string_view call) { return call.substr(0, call.find('(')); }

}  // namespace

void fail_verbs(const char* call, const std::string& where, int reason, const std::string& remedy) {
  fail_usage(fmt::format("{} failed on {} ({}){}{}", name_of(call), where, std::strerror(reason),
                         remedy.empty() ? "" : "; ", remedy));
}

std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return fmt::format("{} kB", limit.rlim_cur / 1024);
}

VerbsMemory register_memory(ibv_pd* domain, void* data, std::size_t bytes,
                            const std::string& where) {
  constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  VerbsMemory memory(ibv_reg_mr(domain, data, bytes, kAccess));
  if (memory) return memory;
  const int reason = errno;
  if (reason != ENOMEM && reason != EAGAIN && reason != EPERM) {
    fail_verbs("ibv_reg_mr", where, reason, fmt::format("{} bytes were to be registered", bytes));
  }
  fail_verbs("ibv_reg_mr", where, reason,
             fmt::format("{} kB of memory were to be locked, the limit RLIMIT_MEMLOCK is {}; raise "
                         "it (ulimit -l unlimited, /etc/security/limits.d, for Slurm LimitMEMLOCK "
                         "in slurmd.service)",
                         (bytes + 1023) / 1024, memlock_text()));
}

}  // namespace weft
