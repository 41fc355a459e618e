// Owned memory. An Arena is the one allocation of a rank that communication may touch: it is made
// once, from the union of what all tensors need, and each transport then shares or registers it.
// Nothing allocates in the datapath.
//
//   Arena arena(MemorySpace::host, bytes);      // memfd-backed, zeroed, reserved: never SIGBUS
//   later std::span<std::byte> block = arena.take(n, 64);
//
// Wrong: to keep a pointer into an arena after the arena is gone.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "patterns/types.hpp"

namespace weft {

enum class MemorySpace : std::uint8_t { host, device };
std::string_view to_string(MemorySpace space);

class Arena {
 public:
  /// Host: a memfd of `bytes` and `room`, rounded up to pages. The first `bytes` are reserved now;
  /// of the `room` beyond them only addresses, and take() reserves what it hands out: for needs
  /// that are known later, as an algorithm's scratch. Throws Error(usage) "needed, free, where" if
  /// the memory is not there (checked against MemAvailable, cgroup and address-space limits before
  /// allocating).
  Arena(MemorySpace space, Bytes bytes, Bytes room = 0);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The next block, aligned; throws Error(usage) when the arena is full.
  std::span<std::byte> take(Bytes bytes, Bytes alignment = 256);
  void reset() { used_ = 0; }

  MemorySpace space() const { return space_; }
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  Bytes used() const { return used_; }
  int fd() const { return fd_; }  // the memfd; -1 on a device
  /// Offset of a pointer inside the arena; -1 if it lies outside.
  Bytes offset_of(const void* pointer) const;

 private:
  MemorySpace space_;
  std::byte* data_ = nullptr;
  void reserve_up_to(Bytes end);
  void unmap();

  Bytes size_ = 0, used_ = 0, reserved_ = 0;
  int fd_ = -1;
};

/// What this process may still allocate: the least of MemAvailable, the cgroup's room and
/// RLIMIT_AS, and which of them it is ("MemAvailable", "cgroup memory.max", "RLIMIT_AS").
struct FreeMemory {
  Bytes bytes = 0;
  std::string limit;
};
FreeMemory free_memory();

}  // namespace weft
