#include "contract_world.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/bootstrap_hosts.hpp"
#include "transports/transport.hpp"

namespace weft {
namespace {

using contract::run_ranks;
using Names = std::vector<std::string>;

TEST(Bootstrap, GathersBytesOfAnyLengthAgainAndAgain) {
  run_ranks(5, [](Bootstrap& b) {
    for (int round = 0; round < 50; ++round) {
      const auto texts =
          b.all_gather(std::string(static_cast<std::size_t>((b.rank() + round) % 5), 'a'));
      ASSERT_EQ(texts.size(), 5u);
      for (std::size_t r = 0; r < 5; ++r)
        EXPECT_EQ(texts[r].size(), (r + static_cast<std::size_t>(round)) % 5);
    }
    EXPECT_EQ(b.max(b.rank() * 2.5), 10.0);
    EXPECT_EQ(b.sum(b.rank()), 10.0);
    EXPECT_TRUE(b.all(true));
    EXPECT_FALSE(b.all(b.rank() != 3));
  });
}

TEST(Bootstrap, VirtualHosts) {
  EXPECT_EQ(with_virtual_hosts({"a", "b", "a", "a", "b"}, 2),
            (Names{"a/v0", "b/v0", "a/v0", "a/v1", "b/v0"}));
  EXPECT_EQ(with_virtual_hosts({"a", "b"}, 0), (Names{"a", "b"}));
  EXPECT_THROW(with_virtual_hosts({"a"}, -1), Error);
  EXPECT_EQ(distinct_real_hosts({"a/v0", "b/v0", "a/v1"}), (Names{"a", "b"}));
  run_ranks(
      5,
      [](Bootstrap& b) {
        EXPECT_EQ(b.host_indices(), (std::vector<int>{0, 0, 1, 1, 2}));
        EXPECT_EQ(b.host_count(), 3);
        EXPECT_EQ(b.local_rank(), b.rank() % 2);
        EXPECT_EQ(b.local_size(), b.rank() == 4 ? 1 : 2);
      },
      2);
}

TEST(Bootstrap, OneRanksErrorIsEveryonesError) {
  run_ranks(3, [](Bootstrap& b) {
    try {
      together(b, [&] {
        if (b.rank() == 1) fail(ExitCode::failed, "no disk");
      });
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "rank 1: no disk");
      EXPECT_EQ(e.code(), ExitCode::failed);
    }
    together(b, [] {});
  });
}

/// Hosts as given; nothing else.
class NamedHosts : public Bootstrap {
 public:
  explicit NamedHosts(Names hosts) : hosts_(std::move(hosts)) {}
  Rank rank() const override { return 0; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte>) override { return {}; }
  void barrier() override {}
  void send(Rank, double) override {}
  double receive(Rank) override { return 0; }
  const Names& hosts() const override { return hosts_; }

 private:
  Names hosts_;
};

TEST(Bootstrap, ShmSaysWhyItIsNotAvailable) {
  NamedHosts two({"a", "b", "a"}), virtual_ones({"a/v0", "a/v1"}), many(Names(65, "a"));
  EXPECT_EQ(shm_unavailable(two), "ranks are on 2 hosts (a, b); shm works inside one host");
  EXPECT_EQ(shm_unavailable(virtual_ones), "");
  EXPECT_EQ(shm_unavailable(many), "65 ranks; shm connects at most 64");
}

}  // namespace
}  // namespace weft
