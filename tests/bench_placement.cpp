// Buffers that rotate, and the digest of what they hold.
#include "bench/placement.hpp"

#include <gtest/gtest.h>

#include "bench/contents.hpp"
#include "patterns/builder.hpp"

namespace weft {
namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

TEST(Rotation, SetsExceedTwiceTheCache) {
  EXPECT_EQ(rotation_sets(1 * kMiB, 8 * kMiB, 1, false), 16);
  EXPECT_EQ(rotation_sets(3 * kMiB, 8 * kMiB, 1, false), 6);   // 18 MiB
  EXPECT_EQ(rotation_sets(16 * kMiB, 8 * kMiB, 1, false), 1);  // one set is as much
  EXPECT_EQ(rotation_sets(64 * kMiB, 8 * kMiB, 1, false), 1);
}

TEST(Rotation, HasItsLimits) {
  EXPECT_EQ(rotation_sets(1 * kMiB, 8 * kMiB, 1, true), 1);  // --hot
  EXPECT_EQ(rotation_sets(512, 8 * kMiB, 1, false), 1024);   // small messages rotate through less
  EXPECT_EQ(rotation_sets(512, 8 * kMiB, 1000, false), 20);  // and long programs
  EXPECT_EQ(rotation_sets(kMiB, 8 * kMiB, 100000, false), 1);
  EXPECT_EQ(rotation_sets(kMiB, 0, 1, false), 64);  // an unknown cache is taken as 32 MiB
  EXPECT_EQ(rotation_sets(0, 8 * kMiB, 0, false), 1);
}

Program two_tensors(Index small, Index large) {
  Program program;
  program.add(generated("a", DType::f32, 1, small));
  program.add(activation("b", DType::bf16, 1, large));
  return program;
}

TEST(Placement, SetsDoNotOverlapAndFillTheArena) {
  const Program program = two_tensors(3, 1000);
  const Bytes set = TensorPlacement::bytes(program);
  EXPECT_EQ(set, 256 + 2048);
  Arena arena(MemorySpace::host, 3 * set);
  std::byte* last_end = arena.data();
  for (int i = 0; i < 3; ++i) {
    const TensorPlacement placement(program, arena);
    EXPECT_EQ(placement.address(0, 0), last_end);
    EXPECT_EQ(placement.address(1, 0), last_end + 256);
    last_end += set;
  }
}

TEST(Contents, AnyChangedByteChangesTheDigest) {
  const Program program = two_tensors(3, 100);
  Arena arena(MemorySpace::host, TensorPlacement::bytes(program));
  const TensorPlacement placement(program, arena);
  const std::uint64_t zeros = contents_digest(program, placement);
  for (int tensor : {0, 1}) {
    const Bytes bytes = tensor == 0 ? 12 : 200;
    for (Bytes at = 0; at < bytes; ++at) {
      placement.address(tensor, 0)[at] ^= std::byte{1};
      EXPECT_NE(contents_digest(program, placement), zeros) << tensor << " " << at;
      placement.address(tensor, 0)[at] ^= std::byte{1};
    }
  }
  EXPECT_EQ(contents_digest(program, placement), zeros);
  placement.address(0, 0)[12] = std::byte{1};  // between two tensors: nobody's
  EXPECT_EQ(contents_digest(program, placement), zeros);
}

TEST(Contents, OfALargeTensorBothEndsCount) {
  const Program program = two_tensors(8, 20 << 20);
  Arena arena(MemorySpace::host, TensorPlacement::bytes(program));
  const TensorPlacement placement(program, arena);
  const std::uint64_t zeros = contents_digest(program, placement);
  for (Bytes at : {Bytes{0}, (Bytes{40} << 20) - 1}) {
    placement.address(1, 0)[at] = std::byte{1};
    EXPECT_NE(contents_digest(program, placement), zeros);
    placement.address(1, 0)[at] = std::byte{0};
  }
}

}  // namespace
}  // namespace weft
