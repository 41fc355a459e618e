#include "patterns/model.hpp"

#include <gtest/gtest.h>

#include <set>

#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr double kMillion = 1e6, kBillion = 1e9;

double attention(const char* name) {
  return static_cast<double>(find_model(name).attention_parameters());
}
double ffn(const char* name) { return static_cast<double>(find_model(name).ffn_parameters()); }
double total(const char* name) { return static_cast<double>(find_model(name).total_parameters()); }

TEST(Model, Gpt3HasThePublishedParametersPerBlock) {
  EXPECT_NEAR(attention("gpt3-175b"), 605 * kMillion, 1.5 * kMillion);
  EXPECT_NEAR(ffn("gpt3-175b"), 1.2 * kBillion, 0.01 * kBillion);
  EXPECT_NEAR(96 * (attention("gpt3-175b") + ffn("gpt3-175b")), 173 * kBillion, 1.1 * kBillion);
  EXPECT_NEAR(total("gpt3-175b"), 175 * kBillion, 0.5 * kBillion);
}

// Exact counts as the published checkpoints have them.
TEST(Model, TotalsAreThoseOfThePublishedCheckpoints) {
  EXPECT_EQ(find_model("gpt2-small").total_parameters(), 124'439'808);
  EXPECT_EQ(find_model("llama3-8b").total_parameters(), 8'030'261'248);
  EXPECT_EQ(find_model("llama3-70b").total_parameters(), 70'553'706'496);
  EXPECT_EQ(find_model("llama3-405b").total_parameters(), 405'853'388'800);
  EXPECT_EQ(find_model("mixtral-8x7b").total_parameters(), 46'702'792'704);
}

TEST(Model, SwitchBaseIsTheSevenBillionModel) {
  EXPECT_NEAR(total("switch-base"), 7.3 * kBillion, 0.15 * kBillion);
  EXPECT_EQ(find_model("switch-base").top_k, 1);
}

TEST(Model, DeepseekSaysHowFarItsApproximationIsOff) {
  const ModelShape& shape = find_model("deepseek-v3");
  EXPECT_NEAR(total("deepseek-v3"), 702 * kBillion, 0.5 * kBillion);
  EXPECT_NEAR(attention("deepseek-v3"), 206 * kMillion, 0.6 * kMillion);
  for (const char* said : {"approximation", "702 B", "671 B", "206 M"}) {
    EXPECT_NE(shape.source.find(said), std::string::npos) << said;
  }
}

TEST(Model, TheLinearLayerOfTheFigureIsAMatrixAlone) {
  const ModelShape& shape = find_model("fig-1-10");
  EXPECT_EQ(shape.hidden, 8);
  EXPECT_EQ(shape.ffn, 4);
  EXPECT_EQ(shape.total_parameters(), 32);
  EXPECT_EQ(shape.attention_parameters(), 0);
}

TEST(Model, EveryShapeIsUsable) {
  std::set<std::string> names;
  for (const ModelShape& shape : models()) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    EXPECT_EQ(shape.hidden % shape.heads, 0) << shape.name;
    EXPECT_EQ(shape.heads % shape.kv_heads, 0) << shape.name;
    EXPECT_GT(shape.seq, 0) << shape.name;
    EXPECT_LE(shape.top_k, shape.experts) << shape.name;
    EXPECT_EQ(shape.experts > 0, shape.top_k > 0) << shape.name;
    EXPECT_FALSE(shape.source.empty()) << shape.name;
  }
  for (const char* name :
       {"tiny", "fig-1-10", "tiny-moe", "switch-base", "gpt2-small", "gpt3-175b", "llama3-8b",
        "llama3-70b", "llama3-405b", "mixtral-8x7b", "deepseek-v3"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

TEST(Model, AnUnknownNameListsTheKnownOnes) {
  try {
    find_model("gpt5");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("gpt3-175b"), std::string::npos);
  }
}

TEST(Model, TheTableHasEveryModelAndTheAccountingOfGpt3) {
  const std::string table = list_models_text();
  for (const ModelShape& shape : models()) EXPECT_NE(table.find(shape.name), std::string::npos);
  for (const char* figure : {"604.0 M", "1.21 B", "173.96 B", "174.60 B"}) {
    EXPECT_NE(table.find(figure), std::string::npos) << figure << "\n" << table;
  }
}

}  // namespace
}  // namespace weft
