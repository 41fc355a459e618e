// Which version of a tensor the reference reads, and what its answers cost.
#include <ctime>

#include "kernels_reference.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

using namespace reference_test;

constexpr double kExact = 1e-12;

Compute op(ComputeKind kind, std::vector<View> in, std::vector<View> out) {
  return {.kind = kind, .in = std::move(in), .out = std::move(out)};
}

// ---- Versions ----------------------------------------------------------------------------------

TEST(Reference, ReadsWhatTheLastEarlierStepWrote) {
  TestProgram p;
  const View x = p.input("X", 4, 6), y = p.output("Y", 4, 6), snapshot = p.output("snapshot", 4, 6);
  View left = y, right = y;
  left.cols = 2;
  right.cols = 4;
  right.offset = 2;
  View x_left = x, x_right = x;
  x_left.cols = 2;
  x_right.cols = 4;
  x_right.offset = 2;
  p.then({.kind = ComputeKind::scale, .in = {x_left}, .out = {left}, .factor = 2});
  p.then({.kind = ComputeKind::scale, .in = {x_right}, .out = {right}, .factor = 3});
  p.then(op(ComputeKind::copy, {y}, {snapshot}));
  View row = y;
  row.rows = 1;
  row.offset = 6;
  p.then({.kind = ComputeKind::scale, .in = {row}, .out = {row}, .factor = -1});
  const Matrix from = p.data(x);
  Matrix before(4, 6);
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c < 6; ++c) before(r, c) = (c < 2 ? 2 : 3) * from(r, c);
  }
  Matrix after = before;
  for (Index c = 0; c < 6; ++c) after(1, c) = -before(1, c);
  expect_near(p.values(snapshot), before, 0);
  expect_near(p.values(y), after, 0);
}

TEST(Reference, CollectivesOfOneRankCopyAlsoToAnotherShape) {
  TestProgram p;
  const View x = p.input("X", 4, 6), flat = p.output("flat", 1, 24), sum = p.output("sum", 3, 8);
  const GroupId group = p.program.add(Group{});
  p.program.then(Step{.op = Collective{.kind = CollectiveKind::all_gather,
                                       .group = group,
                                       .in = x,
                                       .out = flat,
                                       .counts = {24}},
                      .stream = StreamRole::comm});
  p.program.then(
      Step{.op = Collective{
               .kind = CollectiveKind::all_reduce, .group = group, .in = flat, .out = sum}});
  EXPECT_EQ(p.values(sum).data, p.data(x).data);
  Reference sampled(p.program, kSeed);
  EXPECT_EQ(sampled.element("sum", 0, 2, 1).value, p.data(x).data[17]);
  EXPECT_EQ(sampled.element("sum", 0, 2, 1).bound, 0.0);
}

TEST(Reference, RepeatsUseTheirSlots) {
  Program p;
  const TensorId x =
      p.add(Tensor{.name = "X", .rows = 2, .cols = 3, .slots = 3, .fill = Fill::uniform});
  const TensorId total = p.add(Tensor{.name = "total", .rows = 1, .cols = 3, .fill = Fill::zero});
  View in = p.whole(x);
  in.slot_per = {1, 0};
  Repeat repeat{.count = 3,
                .body = {Step{.op = Compute{.kind = ComputeKind::column_sum,
                                            .in = {in},
                                            .out = {p.whole(total)},
                                            .accumulate = true}}}};
  p.then(Step{.op = repeat});
  Reference reference(p, kSeed);
  for (Index c = 0; c < 3; ++c) {
    double sum = 0;
    for (int slot = 0; slot < 3; ++slot) {
      for (Index r = 0; r < 2; ++r) sum += reference.element("X", slot, r, c).value;
    }
    EXPECT_NEAR(reference.element("total", 0, 0, c).value, sum, kExact);
  }
}

TEST(Reference, NamesWhatIsWrong) {
  TestProgram p;
  const View x = p.output("X", 2, 2), y = p.output("Y", 2, 2);
  p.then(op(ComputeKind::copy, {x}, {y}));
  Reference reference(p.program, kSeed);
  EXPECT_THROW(reference.element("Z", 0, 0, 0), Error);
  EXPECT_THROW(reference.element("X", 1, 0, 0), Error);
  EXPECT_THROW(reference.element("X", 0, 2, 0), Error);
  try {
    reference.element("Y", 0, 1, 1);
    FAIL() << "a tensor that nobody wrote was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'X' is read before"), std::string::npos);
  }
}

// ---- Effort ------------------------------------------------------------------------------------

/// Of the processor, since other work may share it.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Reference, SamplesOfALargeLayerNeedOnlyTheirRowAndColumn) {
  TestProgram p;
  const View x = p.input("X", 2048, 12288), a = p.input("A", 12288, 49152);
  const View z = p.output("Z", 2048, 49152), y = p.output("Y", 2048, 49152);
  p.then(op(ComputeKind::gemm, {x, a}, {z}));
  p.then({.kind = ComputeKind::activation, .in = {z}, .out = {y}, .act = Activation::gelu});
  Reference reference(p.program, kSeed);
  EXPECT_GE(reference.cost("Y", 0), 12288);
  EXPECT_LE(reference.cost("Y", 0), 12288 * 20);
  const double time = seconds_of([&] {
    for (Index i = 0; i < 16; ++i) reference.element("Y", 0, 100 * i, 3000 * i);
  });
  EXPECT_LT(time, 1.0);
}

TEST(Reference, CostFollowsTheChain) {
  TestProgram p;
  View x = p.input("X", 32, 64);
  std::vector<double> costs;
  for (const char* name : {"X1", "X2", "X3"}) {
    const View w = p.input("W", 64, 64), y = p.output(name, 32, 64);
    p.then(op(ComputeKind::gemm, {x, w}, {y}));
    x = y;
  }
  Reference reference(p.program, kSeed);
  const double one = reference.cost("X1", 0), two = reference.cost("X2", 0);
  EXPECT_LE(one, 64 * 10);
  EXPECT_GE(two, 64 * 64);  // a whole row of X1
  EXPECT_GE(reference.cost("X3", 0), 2 * 64 * 64);
  EXPECT_LE(reference.cost("X3", 0), 4 * two);
}

TEST(Reference, ChainsOfLayersDoNotOverflowTheStack) {
  TestProgram p;
  View x = p.input("X", 8, 16);
  for (int layer = 0; layer < 400; ++layer) {
    const View w = p.input("W", 16, 16, 0.6), z = p.output("Z", 8, 16), y = p.output("Y", 8, 16);
    p.then(op(ComputeKind::gemm, {x, w}, {z}));
    p.then({.kind = ComputeKind::activation, .in = {z}, .out = {y}, .act = Activation::relu});
    x = y;
  }
  const View last = p.output("last", 8, 16);
  p.then(op(ComputeKind::copy, {x}, {last}));
  Reference reference(p.program, kSeed);
  EXPECT_TRUE(std::isfinite(reference.element("last", 0, 3, 3).value));
}

TEST(Reference, WholeGemmsAreFast) {
  TestProgram p;
  const View x = p.input("X", 64, 512), w = p.input("W", 512, 256), v = p.input("V", 256, 256);
  const View y = p.output("Y", 64, 256), z = p.output("Z", 64, 256);
  p.then(op(ComputeKind::gemm, {x, w}, {y}));
  p.then(op(ComputeKind::gemm, {y, v}, {z}));
  Reference reference(p.program, kSeed);
  const double time = seconds_of([&] { p.values(reference, z); });
  EXPECT_LT(time, 64.0 * 256 * (512 + 256) / 1e7);
}

}  // namespace
}  // namespace weft
