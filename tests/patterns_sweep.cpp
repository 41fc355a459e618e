// Message-size sweeps, and the list of patterns.
#include <gtest/gtest.h>

#include "patterns/error.hpp"
#include "patterns_play.hpp"

namespace weft {
namespace {

std::vector<Program> sweep(CollectiveKind kind, bool message, int ranks, Bytes bytes,
                           DType dtype = DType::f32) {
  const Layout layout = Layout::make({}, ranks);
  std::vector<Program> programs;
  for (Rank r = 0; r < ranks; ++r)
    programs.push_back(make_sweep(kind, message, layout, Dimension::dp, bytes, dtype, r));
  return programs;
}

TEST(Sweep, EveryCollectiveIsValidAtEverySize) {
  for (CollectiveKind kind :
       {CollectiveKind::all_gather, CollectiveKind::all_reduce, CollectiveKind::reduce_scatter,
        CollectiveKind::broadcast, CollectiveKind::all_to_all_v}) {
    for (int ranks : {1, 2, 3, 4, 8}) {
      const auto programs = sweep(kind, false, ranks, 96);
      for (const Program& p : programs) validate(p);
      validate_world(programs);
    }
  }
}

TEST(Sweep, SizesFollowTheOperation) {
  const auto operation = [](CollectiveKind kind) {
    return operations_of(sweep(kind, false, 4, 1024)[1], 1).at(0);
  };
  EXPECT_EQ(operation(CollectiveKind::all_gather).message, 4096);
  EXPECT_EQ(operation(CollectiveKind::all_gather).sent, 3072);
  EXPECT_EQ(operation(CollectiveKind::all_reduce).message, 1024);
  EXPECT_EQ(operation(CollectiveKind::all_reduce).sent, 1536);
  EXPECT_EQ(operation(CollectiveKind::reduce_scatter).message, 4096);
  EXPECT_EQ(operation(CollectiveKind::all_to_all_v).message, 1024);
  EXPECT_EQ(operation(CollectiveKind::all_to_all_v).sent, 768);
}

TEST(Sweep, AMessageGoesFromTheFirstToTheSecond) {
  const auto programs = sweep(CollectiveKind::broadcast, true, 3, 4096, DType::bf16);
  validate_world(programs);
  EXPECT_EQ(operations_of(programs[0]).at(0).message, 4096);
  EXPECT_TRUE(operations_of(programs[1]).empty());
  EXPECT_TRUE(programs[2].steps.empty());
  EXPECT_THROW(sweep(CollectiveKind::broadcast, true, 1, 4096), Error);
}

TEST(Sweep, RefusesSizesThatDoNotDivide) {
  EXPECT_THROW(sweep(CollectiveKind::all_gather, false, 2, 6), Error);
  EXPECT_THROW(sweep(CollectiveKind::all_to_all_v, false, 3, 1024), Error);
  EXPECT_THROW(sweep(CollectiveKind::all_reduce, false, 2, 0), Error);
  EXPECT_NO_THROW(sweep(CollectiveKind::all_gather, false, 2, 6, DType::bf16));
}

TEST(Registry, FindsEveryPatternByItsName) {
  ASSERT_EQ(patterns().size(), 5u);
  for (const Pattern* pattern : patterns()) {
    EXPECT_EQ(&find_pattern(pattern->name), pattern);
    EXPECT_FALSE(pattern->directions.empty());
    EXPECT_NO_THROW(find_model(pattern->default_model));
    EXPECT_FALSE(pattern->option_texts({}).empty());
  }
  EXPECT_THROW(find_pattern("ring"), Error);
}

/// A run without options: one rank, the default model, every direction.
TEST(Registry, EveryPatternRunsOnOneRankWithItsDefaultModel) {
  for (const Pattern* pattern : patterns()) {
    for (Direction direction : pattern->directions) {
      PatternOptions options;
      options.direction = direction;
      const Program p =
          pattern->make(find_model(pattern->default_model), Layout::make({}, 1), options, 0);
      validate(p);
      validate_world({p});
    }
  }
}

}  // namespace
}  // namespace weft
