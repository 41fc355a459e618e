#include "kernels/buffer.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "kernels/buffer_limits.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

template <class Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "nothing was thrown";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Arena, IsZeroedAlignedAndReserved) {
  Arena arena(MemorySpace::host, 10'000'000);
  EXPECT_GE(arena.size(), 10'000'000);
  EXPECT_EQ(arena.size() % sysconf(_SC_PAGESIZE), 0);
  EXPECT_EQ(std::count(arena.data(), arena.data() + arena.size(), std::byte{0}), arena.size());
  struct stat status {};
  ASSERT_EQ(fstat(arena.fd(), &status), 0);
  EXPECT_EQ(status.st_size, arena.size());
  EXPECT_GE(status.st_blocks * 512, arena.size()) << "pages are not there yet";
}

TEST(Arena, IsSharedThroughItsFile) {
  Arena arena(MemorySpace::host, 5000);
  void* other = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  arena.data()[4999] = std::byte{42};
  EXPECT_EQ(static_cast<std::byte*>(other)[4999], std::byte{42});
  munmap(other, 8192);
}

TEST(Arena, TakesBlocksInTurn) {
  Arena arena(MemorySpace::host, 1 << 20);
  const auto a = arena.take(10), b = arena.take(100, 4096), c = arena.take(0);
  EXPECT_EQ(a.size(), 10u);
  EXPECT_EQ(arena.offset_of(a.data()), 0);
  EXPECT_EQ(arena.offset_of(b.data()), 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 4096, 0u);
  EXPECT_EQ(arena.offset_of(c.data()), 4096 + 256);
  EXPECT_EQ(arena.used(), 4096 + 256);
  arena.reset();
  EXPECT_EQ(arena.take(1).data(), arena.data());
}

TEST(Arena, KnowsWhatLiesOutside) {
  Arena arena(MemorySpace::host, 4096);
  int outside = 0;
  EXPECT_EQ(arena.offset_of(&outside), -1);
  EXPECT_EQ(arena.offset_of(nullptr), -1);
  EXPECT_EQ(arena.offset_of(arena.data() + arena.size()), -1);
  EXPECT_EQ(arena.offset_of(arena.data() + arena.size() - 1), arena.size() - 1);
}

TEST(Arena, CanBeFilledToTheLastByteAndNoFurther) {
  Arena arena(MemorySpace::host, 8192);
  arena.take(8192);
  EXPECT_NO_THROW(arena.take(0));
  const std::string message = message_of([&] { arena.take(1); });
  EXPECT_TRUE(mentions(message, "needed 1 bytes") && mentions(message, "free 0 of 8192"))
      << message;
  arena.reset();
  EXPECT_THROW(arena.take(std::numeric_limits<Bytes>::max()), Error);
  EXPECT_THROW(arena.take(-1), Error);
  EXPECT_THROW(arena.take(1, 3), Error);
  EXPECT_THROW(arena.take(1, 0), Error);
}

TEST(Arena, OfNoBytesIsAnArena) {
  Arena arena(MemorySpace::host, 0);
  EXPECT_NE(arena.data(), nullptr);
  EXPECT_GE(arena.fd(), 0);
  EXPECT_EQ(arena.take(0).size(), 0u);
}

TEST(Arena, TooLargeSaysNeededFreeAndWhere) {
  const std::string message = message_of([] { Arena arena(MemorySpace::host, Bytes{1} << 50); });
  EXPECT_TRUE(mentions(message, "needed 1125899906842624 bytes")) << message;
  EXPECT_TRUE(mentions(message, "free ") && mentions(message, "(" + free_memory().limit + ")"))
      << message;
  EXPECT_THROW(Arena(MemorySpace::host, -1), Error);
  EXPECT_THROW(Arena(MemorySpace::host, std::numeric_limits<Bytes>::max()), Error);
}

TEST(Arena, DeviceMemoryNeedsADeviceBackend) {
  EXPECT_TRUE(mentions(message_of([] { Arena arena(MemorySpace::device, 10); }), "device"));
  EXPECT_EQ(to_string(MemorySpace::host), "host");
  EXPECT_EQ(to_string(MemorySpace::device), "device");
}

/// Runs `body` in a child process under a limit; 0 if it returned true.
template <class Body>
int in_child(int resource, rlim_t limit, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit value{limit, limit};
    setrlimit(static_cast<__rlimit_resource>(resource), &value);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Arena, UnderAddressSpaceLimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer itself maps more addresses than the limit allows";
#endif
  const auto limit = static_cast<rlim_t>(Bytes{8} << 30);
  EXPECT_EQ(in_child(RLIMIT_AS, limit,
                     [] {
                       const std::string message =
                           message_of([] { Arena arena(MemorySpace::host, Bytes{9} << 30); });
                       return mentions(message, "RLIMIT_AS") || mentions(message, "MemAvailable");
                     }),
            0);
}

TEST(Arena, ThatUsesUpTheAddressSpaceIsStillReserved) {
  EXPECT_EQ(
      in_child(RLIMIT_AS, RLIM_INFINITY,
               [] {
                 const Bytes used = Bytes{1} << 62;
                 const Bytes now = used - free_memory_under("", used).bytes;
                 const rlimit value{static_cast<rlim_t>(now + (Bytes{40} << 20)), RLIM_INFINITY};
                 setrlimit(RLIMIT_AS, &value);
                 Arena arena(MemorySpace::host, Bytes{36} << 20);
                 return arena.data() != nullptr;
               }),
      0);
}

TEST(Arena, UnderFileSizeLimitIsAnErrorNotASignal) {
  EXPECT_EQ(in_child(RLIMIT_FSIZE, 1 << 20,
                     [] {
                       return mentions(message_of([] { Arena arena(MemorySpace::host, 2 << 20); }),
                                       "RLIMIT_FSIZE");
                     }),
            0);
}

TEST(Arena, WithoutFileDescriptors) {
  EXPECT_EQ(in_child(RLIMIT_NOFILE, 0,
                     [] {
                       return mentions(message_of([] { Arena arena(MemorySpace::host, 4096); }),
                                       "cannot create");
                     }),
            0);
}

// A machine made of files.
class FakeMachine {
 public:
  FakeMachine() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    write("/proc/meminfo", "MemTotal: 64000 kB\nMemAvailable:   32000 kB\n");
    write("/proc/self/statm", "100 50 1 1 0 1 0\n");
  }
  ~FakeMachine() { std::filesystem::remove_all(root_); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  FreeMemory free(Bytes address_space = -1) const {
    return free_memory_under(root_, address_space);
  }

 private:
  std::string root_;
};

TEST(FreeMemory, OfThisMachine) {
  const FreeMemory free = free_memory();
  EXPECT_GT(free.bytes, 0);
  EXPECT_FALSE(free.limit.empty());
}

TEST(FreeMemory, MemAvailable) {
  const FakeMachine machine;
  EXPECT_EQ(machine.free().bytes, 32000 * 1024);
  EXPECT_EQ(machine.free().limit, "MemAvailable");
}

TEST(FreeMemory, AddressSpace) {
  const FakeMachine machine;
  const Bytes used = 100 * sysconf(_SC_PAGESIZE);
  EXPECT_EQ(machine.free(used + 5000).bytes, 5000);
  EXPECT_EQ(machine.free(used + 5000).limit, "RLIMIT_AS");
  EXPECT_EQ(machine.free(used - 1).bytes, 0);
}

TEST(FreeMemory, UnifiedGroupsTightestOnTheWayUp) {
  const FakeMachine machine;
  machine.write("/proc/self/cgroup", "0::/slice/job\n");
  machine.write("/proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
  machine.write("/sys/fs/cgroup/slice/job/memory.max", "max\n");
  machine.write("/sys/fs/cgroup/slice/job/memory.current", "1000\n");
  machine.write("/sys/fs/cgroup/slice/memory.max", "100000\n");
  machine.write("/sys/fs/cgroup/slice/memory.current", "40000\n");
  EXPECT_EQ(machine.free().bytes, 60000);
  EXPECT_EQ(machine.free().limit, "cgroup memory.max");
  machine.write("/sys/fs/cgroup/slice/memory.stat", "anon 5\ninactive_file 7000\nactive_file 3\n");
  EXPECT_EQ(machine.free().bytes, 67000) << "page cache is given up on demand";
}

TEST(FreeMemory, SeparateMemoryController) {
  const FakeMachine machine;
  machine.write("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/outer/box\n");
  machine.write(
      "/proc/self/mountinfo",
      "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "35 31 0:32 /outer/box /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "50000\n");
  machine.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20000\n");
  EXPECT_EQ(machine.free().bytes, 30000) << "the mount shows this very group";
  EXPECT_EQ(machine.free().limit, "cgroup memory.limit_in_bytes");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine.free().limit, "MemAvailable") << "that number means no limit";
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "99999999999999999999\n");
  EXPECT_EQ(machine.free().limit, "MemAvailable");
  machine.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "10\n");
  EXPECT_EQ(machine.free().bytes, 0) << "over its limit";
}

TEST(Arena, RoomTakesAddressesUntilItIsUsed) {
  Arena arena(MemorySpace::host, 4096, 8 * free_memory().bytes);  // more than there is
  const auto scratch = arena.take(Bytes{1} << 20);
  scratch.front() = scratch.back() = std::byte{7};
  EXPECT_EQ(scratch.size(), std::size_t{1} << 20);
  EXPECT_THROW(arena.take(arena.size() - arena.used() - 4096), Error);
}

}  // namespace
}  // namespace weft
