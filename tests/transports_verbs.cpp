// What verbs decides without a device: ports, GIDs, UDP ports, words for
// errors. The wire itself is tested on Soft-RoCE (system/test_rdma.py).
#ifdef WEFT_HAS_VERBS
#include <gtest/gtest.h>

#include <array>

#include "patterns/error.hpp"
#include "transports/roce.hpp"
#include "transports/verbs_control.hpp"
#include "transports/verbs_device.hpp"
#include "transports/verbs_errors.hpp"

namespace weft {
namespace {

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Roce, FlowLabelMakesThePort) {
  EXPECT_EQ(roce_source_port(1, 2, 0x00001), 0xC001);
  EXPECT_EQ(roce_source_port(1, 2, 0x04001), 0xC000);  // bit 14 folds onto bit 0
  EXPECT_EQ(roce_source_port(1, 2, 0xFFFFF), 0xFFC0);
}

const std::vector<VerbsPort> kPorts = {{"mlx5_0", 1, true, "ACTIVE", 0},
                                       {"mlx5_1", 1, false, "DOWN", 0},
                                       {"mlx5_2", 1, true, "ACTIVE", 1},
                                       {"mlx5_2", 2, true, "ACTIVE", 1}};

TEST(VerbsPort, NearestFirst) {
  EXPECT_EQ(choose_port(kPorts, "", 0, 0).name(), "mlx5_0:1");
  EXPECT_EQ(choose_port(kPorts, "", 0, 5).name(), "mlx5_0:1");
  EXPECT_EQ(choose_port(kPorts, "", 1, 0).name(), "mlx5_2:1");
}

TEST(VerbsPort, ARailEach) {
  EXPECT_EQ(choose_port(kPorts, "", 1, 1).name(), "mlx5_2:2");
  EXPECT_EQ(choose_port(kPorts, "", -1, 2).name(), "mlx5_2:2");  // nearness unknown: all active
  EXPECT_EQ(choose_port(kPorts, "", 7, 1).name(), "mlx5_2:1");   // none is near
}

TEST(VerbsPort, ByName) {
  EXPECT_EQ(choose_port(kPorts, "mlx5_2:2", 0, 0).name(), "mlx5_2:2");
  EXPECT_EQ(choose_port(kPorts, "mlx5_2", 0, 1).name(), "mlx5_2:2");
}

TEST(VerbsPort, ErrorsListWhatThereIs) {
  const std::string down = error_of([] { choose_port(kPorts, "mlx5_1:1", 0, 0); });
  EXPECT_TRUE(contains(down, "mlx5_1:1 is DOWN") && contains(down, "mlx5_2:2 (ACTIVE)")) << down;
  const std::string none = error_of([] { choose_port(kPorts, "mlx5_9", 0, 0); });
  EXPECT_TRUE(contains(none, "'mlx5_9'") && contains(none, "mlx5_0:1 (ACTIVE)")) << none;
  EXPECT_EQ(error_of([] { choose_port({}, "", 0, 0); }), "there is no RDMA device");
  const std::string all = error_of([] { choose_port({kPorts[1]}, "", 0, 0); });
  EXPECT_TRUE(contains(all, "mlx5_1:1 (DOWN)")) << all;
}

// Every length about the ones that are copied by words; nothing beside it changes.
TEST(VerbsControl, CopiesMessagesOfEachLength) {
  std::array<std::byte, 64> from{};
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
  for (std::size_t n = 0; n <= 40; ++n) {
    std::array<std::byte, 64> to{};
    copy_message(to.data() + 3, from.data() + 5, n);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const bool copied = i >= 3 && i < 3 + n;
      EXPECT_EQ(to[i], copied ? from[i + 2] : std::byte{0}) << n << " bytes, at " << i;
    }
  }
}

// In any order: what may be used again are the slots before the first that still waits.
TEST(VerbsControl, SlotsAreFreeInTheOrderOfTheRing) {
  UnloadedSlots slots;
  slots.set_ring(4);
  const auto after = [&](std::uint32_t slot) {
    slots.unload(slot);
    return slots.uses();
  };
  EXPECT_EQ(after(0), 1u);
  EXPECT_EQ(after(2), 1u);  // slot 1 waits
  EXPECT_EQ(after(3), 1u);
  EXPECT_EQ(after(0), 1u);  // its second use
  EXPECT_EQ(after(1), 5u);
  EXPECT_EQ(after(1), 6u);
  EXPECT_EQ(after(3), 6u);
  EXPECT_EQ(after(2), 8u);
  EXPECT_EQ(after(0), 9u);
}

using Type = GidFacts::Type;
const std::vector<GidFacts> kGids = {{0, Type::roce_v1, false, true},
                                     {1, Type::roce_v2, false, true},
                                     {2, Type::roce_v1, true, false},
                                     {3, Type::roce_v2, false, false},
                                     {4, Type::roce_v2, true, false}};

TEST(VerbsGid, RoceV2OverIPv4First) {
  EXPECT_EQ(choose_gid(kGids, -1, "d:1"), 4);
  EXPECT_EQ(choose_gid({kGids.begin(), kGids.begin() + 4}, -1, "d:1"), 3);
  EXPECT_EQ(choose_gid({kGids.begin(), kGids.begin() + 3}, -1, "d:1"), 1);
  EXPECT_EQ(choose_gid({kGids[2]}, -1, "d:1"), 2);
  EXPECT_EQ(choose_gid({{0, Type::infiniband, false, false}}, -1, "d:1"), 0);
}

TEST(VerbsGid, AskedForAndAbsent) {
  EXPECT_EQ(choose_gid(kGids, 2, "d:1"), 2);
  const std::string text = error_of([] { choose_gid(kGids, 9, "d:1"); });
  EXPECT_TRUE(contains(text, "--gid-index 9") && contains(text, "4 (RoCE v2, IPv4)")) << text;
  EXPECT_TRUE(contains(error_of([] { choose_gid({}, -1, "d:1"); }), "d:1 has no GID"));
}

TEST(VerbsGid, Text) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[15] = 7;
  EXPECT_EQ(gid_text(gid), "10.0.0.7");
  gid.raw[0] = 0xfe;
  EXPECT_FALSE(is_ipv4(gid));
}

TEST(VerbsErrors, StatusInWords) {
  const std::string text = completion_text(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(contains(text, "did not acknowledge") && contains(text, "status 12")) << text;
  EXPECT_TRUE(contains(completion_remedy(IBV_WC_RETRY_EXC_ERR), "UDP 4791"));
}

}  // namespace
}  // namespace weft
#endif
