// libibverbs' objects, each with one owner, and its calls with errors that say what they were
// about. Private to verbs*.cpp.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/buffer.hpp"

namespace weft {

template <auto Destroy>
struct VerbsDestroyer {
  void operator()(auto* object) const noexcept { Destroy(object); }
};
template <class T, auto Destroy>
using VerbsHandle = std::unique_ptr<T, VerbsDestroyer<Destroy>>;

using VerbsContext = VerbsHandle<ibv_context, ibv_close_device>;
using VerbsDomain = VerbsHandle<ibv_pd, ibv_dealloc_pd>;
using VerbsMemory = VerbsHandle<ibv_mr, ibv_dereg_mr>;
using VerbsCompletions = VerbsHandle<ibv_cq, ibv_destroy_cq>;
using VerbsQueuePair = VerbsHandle<ibv_qp, ibv_destroy_qp>;

/// Throws Error(usage): "ibv_create_qp failed on rxe0:1 (Cannot allocate memory): REMEDY". `reason`
/// is an errno.
[[noreturn]] void fail_verbs(const char* call, const std::string& where, int reason,
                             const std::string& remedy = {});

/// RLIMIT_MEMLOCK in words, "64 KiB" or "unlimited", and what to do about it.
std::string memlock_text();

/// Memory of the host or of a GPU. A GPU's is known to the kernel by the dma-buf that the GPU's
/// driver exports, or (-1) by its address, where nvidia-peermem is loaded.
struct MemoryRange {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  MemorySpace space = MemorySpace::host;
  int dma_buf = -1;                  // a file descriptor, which stays the caller's
  std::uint64_t dma_buf_offset = 0;  // of `data` in it
};

/// Registers memory for local and remote access. Throws Error(usage) that names the limit on locked
/// memory, or what the device or the kernel lacks for a GPU's, where that is the reason.
VerbsMemory register_memory(ibv_pd* domain, const MemoryRange& range, const std::string& where);

}  // namespace weft

/// For calls that return 0 or an errno.
#define CHECK_VERBS(call, where)                                                   \
  do {                                                                             \
    const int weft_verbs_error = (call);                                           \
    if (weft_verbs_error != 0) ::weft::fail_verbs(#call, where, weft_verbs_error); \
  } while (false)
