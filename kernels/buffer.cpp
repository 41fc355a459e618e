#include "kernels/buffer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/buffer_limits.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

// Memory is reserved piece by piece, and what is free is asked anew for each: ranks of one host
// that start together would each find room for themselves alone.
constexpr Bytes kPiece = Bytes{64} << 20;

std::string_view remedy() {
  return "choose a smaller model, fewer ranks per host or a larger limit";
}

std::string amount(Bytes bytes) {
  return fmt::format("{} bytes ({:.1f} MiB)", bytes, static_cast<double>(bytes) / 0x1p20);
}

[[noreturn]] void fail_to(const char* action, Bytes needed, int error) {
  const FreeMemory free = free_memory();
  fail_usage(fmt::format("cannot {} an arena: needed {}, free {} ({}): {}; {}", action,
                         amount(needed), amount(free.bytes), free.limit, std::strerror(error),
                         remedy()));
}

/// Throws unless `bytes` more of an arena of `needed` are there.
void expect_free(const FreeMemory& free, Bytes bytes, Bytes needed) {
  if (bytes <= free.bytes) return;
  fail_usage(fmt::format(
      "not enough memory for an arena: needed {}, of which {} are missing now; free {} ({}); {}",
      amount(needed), amount(bytes), amount(free.bytes), free.limit, remedy()));
}

/// Beyond this limit the kernel would kill the process (SIGXFSZ) in place of an error.
void expect_file_size_allowed(Bytes needed) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (static_cast<std::uint64_t>(needed) <= limit.rlim_cur) return;
  fail_usage(
      fmt::format("not enough memory for an arena: needed {}, allowed {} (RLIMIT_FSIZE); raise it "
                  "with ulimit -f",
                  amount(needed), limit.rlim_cur));
}

/// An arena in the making: what has been acquired is given back unless all of it was.
class Mapping {
 public:
  explicit Mapping(Bytes size) : size_(size) {
    fd_ = memfd_create("weft-arena", MFD_CLOEXEC);
    if (fd_ < 0) fail_to("create", size_, errno);
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(size_));
    if (fd_ >= 0) close(fd_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void map() {
    if (ftruncate(fd_, size_) != 0) fail_to("size", size_, errno);
    void* address =
        mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) fail_to("map", size_, errno);
    data_ = static_cast<std::byte*>(address);
    // Advice only: where the kernel gives no huge pages to shared memory, small ones do.
    madvise(data_, static_cast<std::size_t>(size_), MADV_HUGEPAGE);
  }

  std::pair<std::byte*, int> release() {
    return {std::exchange(data_, nullptr), std::exchange(fd_, -1)};
  }

 private:
  Bytes size_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
};

/// Through the mapping, because only so the advice on huge pages counts. Kernels before 5.14
/// refuse; fallocate() then does it all, and reports what is short in any case.
void populate([[maybe_unused]] std::byte* data, [[maybe_unused]] Bytes bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(data, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE);
#endif
}

/// Gives every page of [begin, end) memory now, so that no access can fail later (SIGBUS) or cost a
/// page fault while timed.
void reserve(std::byte* data, int fd, Bytes begin, Bytes end) {
  for (Bytes offset = begin; offset < end; offset += kPiece) {
    const Bytes piece = std::min(kPiece, end - offset);
    expect_free(free_memory_under("", -1), piece, end);  // the addresses it has
    populate(data + offset, piece);
    int result = 0;
    do {
      result = fallocate(fd, 0, offset, piece);
    } while (result != 0 && errno == EINTR);
    if (result != 0) fail_to("reserve", end, errno);
  }
}

}  // namespace

std::string_view to_string(MemorySpace space) {
  return space == MemorySpace::host ? "host" : "device";
}

Arena::Arena(MemorySpace space, Bytes bytes, Bytes room) : space_(space) {
  if (space != MemorySpace::host) {
    fail_usage(
        "an arena in device memory needs a device backend, which this build lacks; use host");
  }
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  if (bytes < 0 || room < 0 || bytes > (Bytes{1} << 61) || room > (Bytes{1} << 61)) {
    fail_usage(fmt::format("an arena cannot have {} bytes and room for {}", bytes, room));
  }
  // At least a page: an empty file could be neither mapped nor registered, and callers would have
  // to tell it apart.
  const auto whole_pages = [page](Bytes n) { return std::max(page, (n + page - 1) / page * page); };
  size_ = whole_pages(bytes + room);
  const Bytes first = whole_pages(bytes);
  expect_free(free_memory(), first, first);
  expect_file_size_allowed(size_);
  Mapping mapping(size_);
  mapping.map();
  std::tie(data_, fd_) = mapping.release();
  try {
    reserve_up_to(first);
  } catch (...) {
    unmap();
    throw;
  }
}

void Arena::reserve_up_to(Bytes end) {
  if (end <= reserved_) return;
  const auto page = static_cast<Bytes>(sysconf(_SC_PAGESIZE));
  const Bytes whole = std::min(size_, (end + page - 1) / page * page);
  expect_free(free_memory(), whole - reserved_, whole);  // all of it, before the first piece
  reserve(data_, fd_, reserved_, whole);
  reserved_ = whole;
}

void Arena::unmap() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(size_));
  if (fd_ >= 0) close(fd_);
}

Arena::~Arena() { unmap(); }

std::span<std::byte> Arena::take(Bytes bytes, Bytes alignment) {
  if (bytes < 0 || alignment < 1 || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    fail_usage(
        fmt::format("an arena cannot give {} bytes aligned to {}: the size must not be negative, "
                    "the alignment a "
                    "power of two",
                    bytes, alignment));
  }
  const auto base = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(data_));
  const Bytes start = ((base + used_ + alignment - 1) & -alignment) - base;
  if (start > size_ || bytes > size_ - start) {
    fail_usage(
        fmt::format("the arena is full: needed {} bytes aligned to {}, free {} of {} ({} arena); "
                    "make the arena larger",
                    bytes, alignment, size_ - used_, size_, to_string(space_)));
  }
  reserve_up_to(start + bytes);
  used_ = start + bytes;
  return {data_ + start, static_cast<std::size_t>(bytes)};
}

Bytes Arena::offset_of(const void* pointer) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto base = reinterpret_cast<std::uintptr_t>(data_);
  if (address < base || address - base >= static_cast<std::uintptr_t>(size_)) return -1;
  return static_cast<Bytes>(address - base);
}

}  // namespace weft
