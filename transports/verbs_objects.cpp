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

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// Its addresses here and for the peers are those of the GPU.
ibv_mr* register_dma_buf([[maybe_unused]] ibv_pd* domain,
                         [[maybe_unused]] const MemoryRange& range) {
#ifdef WEFT_DMA_BUF
  return ibv_reg_dmabuf_mr(domain, range.dma_buf_offset, range.bytes,
                           reinterpret_cast<std::uint64_t>(range.data), range.dma_buf, kAccess);
#else
  errno = EOPNOTSUPP;
  return nullptr;
#endif
}

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

VerbsMemory register_memory(ibv_pd* domain, const MemoryRange& range, const std::string& where) {
  const bool by_dma_buf = range.dma_buf >= 0;
  VerbsMemory memory(by_dma_buf ? register_dma_buf(domain, range)
                                : ibv_reg_mr(domain, range.data, range.bytes, kAccess));
  if (memory) return memory;
  const int reason = errno;
  const char* call = by_dma_buf ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr";
  if (range.space == MemorySpace::device) {
    fail_verbs(call, where, reason,
               fmt::format("{} bytes of a GPU were to be registered; {}", range.bytes,
                           by_dma_buf ? "this device's driver takes no such dma-buf: load "
                                        "nvidia-peermem, or use another device"
                                      : "load nvidia-peermem"));
  }
  if (reason != ENOMEM && reason != EAGAIN && reason != EPERM) {
    fail_verbs(call, where, reason, fmt::format("{} bytes were to be registered", range.bytes));
  }
  fail_verbs(call, where, reason,
             fmt::format("{} kB of memory were to be locked, the limit RLIMIT_MEMLOCK is {}; raise "
                         "it (ulimit -l unlimited, /etc/security/limits.d, for Slurm LimitMEMLOCK "
                         "in slurmd.service)",
                         (range.bytes + 1023) / 1024, memlock_text()));
}

}  // namespace weft
