#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "contract_world.hpp"
#include "transports/shm_copy.hpp"
#include "transports/shm_sockets.hpp"
#include "transports/shm_thresholds.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::set<std::string> listing(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    names.insert(entry.path().string());
  return names;
}

/// Every rank shares a memfd with its number in it; each must find the number of the rank that it
/// asked.
void expect_exchange(Bootstrap& b, SocketPlace place) {
  const Descriptor mine = make_memfd("weft-test", 4096), other = make_memfd("weft-test", 8192);
  const SharedMapping memory(mine.get(), 4096);
  memory.data()[0] = static_cast<std::byte>(b.rank() + 1);
  const std::array<int, 2> shared{mine.get(), other.get()};
  const auto received = exchange_descriptors(b, shared, std::span(&place, 1));
  ASSERT_EQ(received.size(), static_cast<std::size_t>(b.size()));
  for (int r = 0; r < b.size(); ++r) {
    const auto& theirs = received[static_cast<std::size_t>(r)];
    if (r == b.rank()) {
      EXPECT_TRUE(theirs.empty());
      continue;
    }
    ASSERT_EQ(theirs.size(), 2u);
    EXPECT_EQ(size_of_file(theirs[1].get()), 8192);
    EXPECT_EQ(SharedMapping(theirs[0].get(), 4096).data()[0], static_cast<std::byte>(r + 1));
  }
  b.barrier();
}

/// A TMPDIR of its own for one test.
class PrivateTmpdir {
 public:
  PrivateTmpdir() {
    std::string pattern = fs::temp_directory_path().string() + "/weft-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
    setenv("TMPDIR", path_.c_str(), 1);
  }
  ~PrivateTmpdir() {
    unsetenv("TMPDIR");
    fs::remove_all(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Shm, DescriptorsTravelOverAbstractSockets) {
  const PrivateTmpdir tmpdir;
  contract::run_ranks(5, [](Bootstrap& b) { expect_exchange(b, SocketPlace::abstract); });
  EXPECT_TRUE(listing(tmpdir.path()).empty());
}

TEST(Shm, DescriptorsTravelOverSocketsInTmpdir) {
  const PrivateTmpdir tmpdir;
  contract::run_ranks(3, [](Bootstrap& b) { expect_exchange(b, SocketPlace::temporary); });
  EXPECT_TRUE(listing(tmpdir.path()).empty());
}

TEST(Shm, WithoutAPlaceForSocketsAllRanksSayWhy) {
  setenv("TMPDIR", "/nonexistent", 1);
  contract::run_ranks(2, [](Bootstrap& b) {
    const SocketPlace place = SocketPlace::temporary;
    const int fd = 0;
    try {
      exchange_descriptors(b, std::span(&fd, 1), std::span(&place, 1));
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("TMPDIR"), std::string::npos) << e.what();
    }
  });
  unsetenv("TMPDIR");
}

TEST(Shm, NothingIsLeftAfterKill9) {
  const PrivateTmpdir tmpdir;
  const auto before = listing("/dev/shm");
  const pid_t child = fork();
  if (child == 0) {
    contract::run_ranks(2, [](Bootstrap& b) {
      expect_exchange(b, SocketPlace::temporary);
      contract::World w(b, "shm", "");
      b.barrier();
      kill(getpid(), SIGKILL);
      pause();
    });
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(listing(tmpdir.path()).empty());
  EXPECT_EQ(listing("/dev/shm"), before);
}

TEST(Shm, TokenShowsAndGoes) {
  std::array<std::byte, 64> block{};
  block[3] = std::byte{7};
  const Token token = random_token();
  EXPECT_NE(token, random_token());
  {
    const TokenPage page(block.data(), token);
    EXPECT_TRUE(shows_token(block.data(), token));
    EXPECT_FALSE(shows_token(block.data(), random_token()));
  }
  EXPECT_FALSE(shows_token(block.data(), token));
  EXPECT_EQ(block[3], std::byte{7});
}

/// A bootstrap whose rank 1 announces other tokens than it shows: as if its peers had mapped
/// foreign memory.
class WrongTokens : public Bootstrap {
 public:
  explicit WrongTokens(Bootstrap& real) : real_(real) {}
  Rank rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine) override {
    std::vector<std::byte> bytes(mine.begin(), mine.end());
    if (rank() == 1 && bytes.size() > 40)
      bytes[16] ^= std::byte{1};  // the arena's token in the announcement
    return real_.all_gather(bytes);
  }
  void barrier() override { real_.barrier(); }
  void send(Rank to, double value) override { real_.send(to, value); }
  double receive(Rank from) override { return real_.receive(from); }
  const std::vector<std::string>& hosts() const override { return real_.hosts(); }
  bool in_process() const override { return true; }

 private:
  Bootstrap& real_;
};

TEST(Shm, ForeignMemoryIsNotAccepted) {
  contract::run_ranks(2, [](Bootstrap& real) {
    WrongTokens b(real);
    try {
      contract::World w(b, "shm", "");
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("mapped for rank 1 on thread-host is not that rank's"),
                std::string::npos)
          << e.what();
    }
  });
}

TEST(Shm, OpeningLeavesTheArenaAsItWas) {
  contract::run_ranks(3, [](Bootstrap& b) {
    Arena arena(MemorySpace::host, 4096);
    std::memset(arena.data(), 0x5a, 4096);
    const auto session = find_transport("shm").open(b, arena, {});
    EXPECT_EQ(std::count(arena.data(), arena.data() + 4096, std::byte{0x5a}), 4096);
    b.barrier();
  });
}

TEST(Shm, CopyIsExactForAnyAlignment) {
  constexpr auto kStreaming = static_cast<std::size_t>(kShmThresholds.streaming_put);
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, kStreaming - 1,
                              kStreaming, kStreaming + 131}) {
    for (const std::size_t shift : {0, 1, 33}) {
      std::vector<unsigned char> from(n + 64), to(n + 128, 0xee);
      std::iota(from.begin(), from.end(), static_cast<unsigned char>(n + shift));
      copy_to_peer(reinterpret_cast<std::byte*>(to.data()) + 64 - shift,
                   reinterpret_cast<std::byte*>(from.data()) + shift, n);
      EXPECT_EQ(std::memcmp(to.data() + 64 - shift, from.data() + shift, n), 0);
      EXPECT_EQ(std::count(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(64 - shift), 0xee),
                64 - static_cast<int>(shift));
      EXPECT_EQ(to[64 - shift + n], 0xee);
    }
  }
}

}  // namespace
}  // namespace weft
