// The scenes of the source documents: the figures they must show.
#include <gtest/gtest.h>

#include "patterns/error.hpp"
#include "patterns/pattern.hpp"

namespace weft {
namespace {

struct Played {
  std::string text;
  PatternOptions options;
  std::vector<OperationTraffic> operations;
};

Played play(std::string_view id, std::string_view pattern, std::string_view model_name,
            LayoutSpec spec, int world, PatternOptions options = {}) {
  const Scene& scene = find_scene(id, pattern);
  scene.apply(options, spec);
  const ModelShape& model = find_model(!scene.model.empty() ? scene.model : model_name);
  const Layout layout = Layout::make(spec, world);
  const Program program = find_pattern(pattern).make(model, layout, options, 0);
  validate(program);
  return {scene.text(model, layout, options), options, operations_of(program, 0)};
}

bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  ADD_FAILURE() << "no '" << part << "' in\n" << text;
  return false;
}

PatternOptions bf16() {
  PatternOptions options;
  options.dtype = DType::bf16;
  return options;
}

TEST(Scenes, S4HalvesFourNeuronsOverTwoRanks) {
  const Played s4 = play("S4", "tp-allgather", "", {}, 2);
  for (const char* part :
       {"n1, n2, n3, n4", "4x8", "8x4", "2x8", "8x2", "GPU0", "GPU1", "TP Rank 1", "scale_up",
        "freed", "64 bytes", "128 bytes", "as in the source", "as commonly practised"}) {
    has(s4.text, part);
  }
  ASSERT_EQ(s4.operations.size(), 1u);
  EXPECT_EQ(s4.operations[0].message, 16);  // four floats
  EXPECT_EQ(s4.operations[0].sent, 8);
}

TEST(Scenes, S14AndS15ShowTheNumbersOfGpt3) {
  has(play("S14", "tp-allgather", "gpt3-175b", {.tp = 8}, 8, bf16()).text,
      "201326592 bytes (201.3 MB)");
  const Played s15 = play("S15", "row-allreduce", "gpt3-175b", {.tp = 8}, 8, bf16());
  has(s15.text, "50331648 bytes (50.3 MB)");
  has(s15.text, "88080384");
  EXPECT_EQ(s15.operations.at(0).sent, 88080384);
}

TEST(Scenes, S19SplitsTheAllReduce) {
  const Played row = play("S19", "row-allreduce", "gpt3-175b", {.tp = 8}, 8, bf16());
  EXPECT_TRUE(row.options.sequence_parallel);
  EXPECT_EQ(row.operations.at(0).operation, "reduce_scatter");
  has(row.text, "ReduceScatter 44040192 bytes");
  has(row.text, "AllReduce 88080384 bytes");
  has(row.text, "132120576");  // with the second AllGather of X
  has(row.text, "1/8 of it: 6291456");
  EXPECT_EQ(
      play("S19", "tp-allgather", "gpt3-175b", {.tp = 8}, 8, bf16()).operations.at(0).operation,
      "all_gather");
}

TEST(Scenes, S18ComparesNodeAndFabric) {
  const Played s18 = play("S18", "row-allreduce", "gpt3-175b", {.tp = 8}, 8, bf16());
  has(s18.text, "97.9 us at 900 GB/s");  // 88.08 MB
  has(s18.text, "195.7 us at 450 GB/s");
  has(s18.text, "1761.6 us at 50 GB/s");
  has(s18.text, "f = 1778 in the node, 16000 across nodes");
}

TEST(Scenes, S20ShowsTheTopK) {
  const Played s20 = play("S20", "moe-alltoall", "mixtral-8x7b", {.ep = 8}, 8, bf16());
  has(s20.text, "top 1 (Switch)");
  has(s20.text, "67108864 bytes");  // 4096*2*4096*2
  has(s20.text, "58720256 bytes");  // 7/8 of it
  has(s20.text, "EP Rank 7");
}

TEST(Scenes, S13TellsEveryPatternsTraffic) {
  for (const Pattern* pattern : patterns()) {
    const Scene& scene = find_scene("S13", pattern->name);
    const std::string text = scene.text(find_model("tiny"), Layout::make({}, 2), {});
    for (const Pattern* other : patterns()) has(text, other->name);
    has(text, "exactly once");
    has(text, "row-allreduce backward     sends nothing");
  }
  const std::string dense =
      find_scene("S13", "tp-allgather").text(find_model("gpt2-small"), Layout::make({}, 2), {});
  has(dense, "not with these settings: model gpt2-small has no experts");
}

TEST(Scenes, UnknownOnesAreRefused) {
  EXPECT_THROW(find_scene("S4", "moe-alltoall"), Error);
  EXPECT_THROW(find_scene("S99", "tp-allgather"), Error);
  try {
    find_scene("S99", "tp-allgather");
  } catch (const Error& error) {
    has(error.what(), "S14");
  }
}

TEST(Scenes, EveryTextWorksForEveryModelAndRankCount) {
  for (const Scene& scene : scenes()) {
    for (const char* model : {"tiny", "tiny-moe", "mixtral-8x7b"}) {
      for (int world : {1, 2, 4}) {
        LayoutSpec spec;
        if (scene.pattern == "moe-alltoall") {
          spec.ep = world;
        } else {
          spec.tp = world;
        }
        EXPECT_FALSE(scene.text(find_model(model), Layout::make(spec, world), {}).empty());
      }
    }
  }
}

}  // namespace
}  // namespace weft
