#include "patterns/partition.hpp"

#include <gtest/gtest.h>

#include "patterns/error.hpp"

namespace weft {
namespace {

TEST(Partition, TheFirstPartsHaveOneMore) {
  EXPECT_EQ(part_sizes(10, 4), (std::vector<Index>{3, 3, 2, 2}));
  EXPECT_EQ(part_sizes(8, 4), (std::vector<Index>{2, 2, 2, 2}));
  EXPECT_EQ(part_sizes(2, 4), (std::vector<Index>{1, 1, 0, 0}));
  EXPECT_EQ(part_sizes(0, 3), (std::vector<Index>{0, 0, 0}));
}

TEST(Partition, PartsFollowEachOtherAndCoverAll) {
  for (Index total : {0, 1, 7, 64, 1000003}) {
    for (int parts : {1, 2, 3, 7, 16}) {
      const std::vector<Index> sizes = part_sizes(total, parts);
      Index next = 0;
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(total, parts, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_EQ(part.size, sizes[static_cast<std::size_t>(i)]);
        next += part.size;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(Partition, RefusesPartsThatDoNotExist) {
  EXPECT_THROW(part_of(8, 0, 0), Error);
  EXPECT_THROW(part_of(8, 2, 2), Error);
  EXPECT_THROW(part_of(8, 2, -1), Error);
  EXPECT_THROW(part_sizes(-1, 2), Error);
}

TEST(Partition, DividesExactlyOrSaysWhatWould) {
  EXPECT_EQ(divide_exactly(96, 8, "heads", "tp"), 12);
  try {
    divide_exactly(10, 4, "heads", "tp");
    FAIL() << "divided";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("heads 10 does not divide by tp 4"), std::string::npos) << text;
    EXPECT_NE(text.find("8 or 12"), std::string::npos) << text;
  }
}

TEST(Partition, PadsUpToTheNextMultiple) {
  EXPECT_EQ(padded(10, 4), 12);
  EXPECT_EQ(padded(12, 4), 12);
  EXPECT_EQ(padded(0, 4), 0);
  EXPECT_EQ(padded(1, 7), 7);
}

}  // namespace
}  // namespace weft
