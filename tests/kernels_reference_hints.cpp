// Selections that a run made, given to the reference: used where valid, refused where not.
#include "kernels_reference.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

using namespace reference_test;

/// Two experts so close that f32 cannot tell them apart, and a third that it can.
struct NearTie : TestProgram {
  View p, idx, w, s;
  NearTie() {
    const View x = input("X", 4, 8, 1e-9), a = input("A", 8, 3, 1e-3), logits = output("Z", 4, 3);
    const View bias = input("bias", 1, 3, 2.0, Fill::zipf_bias), shifted = output("Zb", 4, 3);
    p = output("P", 4, 3);
    idx = integers("idx", 4, 1);
    w = output("W", 4, 1);
    s = output("S", 4, 8);
    then({.kind = ComputeKind::gemm, .in = {x, a}, .out = {logits}});
    then({.kind = ComputeKind::bias, .in = {logits, bias}, .out = {shifted}});
    // Columns 0 and 1 equal to within the error of f32: column 1 gets the bias of column 0.
    View first = shifted, second = shifted, z_first = logits, z_second = logits;
    first.cols = second.cols = z_first.cols = z_second.cols = 1;
    second.offset = z_second.offset = 1;
    then({.kind = ComputeKind::copy, .in = {z_first}, .out = {first}});
    then({.kind = ComputeKind::copy, .in = {z_second}, .out = {second}});
    then({.kind = ComputeKind::softmax, .in = {shifted}, .out = {p}});
    then({.kind = ComputeKind::top_k, .in = {p}, .out = {idx, w}, .experts = 3});
    then({.kind = ComputeKind::permute, .in = {x, idx}, .out = {s}, .experts = 3});
  }
};

TEST(ReferenceHints, EitherSideOfATieIsAValidChoice) {
  const NearTie tie;
  const Matrix own = tie.values(tie.idx);
  std::vector<std::int32_t> other;
  for (double choice : own.data) other.push_back(choice == 0 ? 1 : 0);
  Reference reference(tie.program, kSeed);
  reference.hint("idx", other);
  for (Index t = 0; t < 4; ++t) {
    EXPECT_EQ(reference.element("idx", 0, t, 0).value, other[static_cast<std::size_t>(t)]);
    const Bounded w = reference.element("W", 0, t, 0);
    EXPECT_NEAR(w.value, tie.values(tie.w)(t, 0), w.bound);
  }
  EXPECT_NO_THROW(reference.element("S", 0, 3, 7));
}

TEST(ReferenceHints, AWrongChoiceIsRefusedAtEveryUse) {
  const NearTie tie;
  Reference reference(tie.program, kSeed);
  reference.hint("idx", {0, 1, 2, 0});  // expert 2 has a seventh of the probability
  EXPECT_NO_THROW(reference.element("W", 0, 1, 0));
  EXPECT_NO_THROW(reference.element("S", 0, 0, 0));
  for (int use = 0; use < 2; ++use) {
    EXPECT_THROW(reference.element("idx", 0, 2, 0), Error);
    EXPECT_THROW(reference.element("W", 0, 2, 0), Error);
    EXPECT_THROW(reference.element("S", 0, 3, 0), Error);
  }
  try {
    reference.element("W", 0, 2, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::failed);
    EXPECT_NE(std::string(error.what()).find("row 2: expert 2"), std::string::npos);
  }
}

TEST(ReferenceHints, MakeSamplesCheap) {
  TestProgram p;
  const Index tokens = 4096, hidden = 512, experts = 64;
  const View x = p.input("X", tokens, hidden), r = p.input("R", hidden, experts);
  const View z = p.output("Z", tokens, experts), idx = p.integers("idx", tokens, 1);
  const View w = p.output("W", tokens, 1), s = p.output("S", tokens, hidden);
  p.then({.kind = ComputeKind::gemm, .in = {x, r}, .out = {z}});
  p.then({.kind = ComputeKind::top_k, .in = {z}, .out = {idx, w}, .experts = experts});
  p.then({.kind = ComputeKind::permute, .in = {x, idx}, .out = {s}, .experts = experts});
  Reference reference(p.program, kSeed);
  const double all = reference.cost("S", 0);
  EXPECT_GE(all, static_cast<double>(tokens * hidden * experts));
  reference.hint("idx", std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 0));
  EXPECT_LT(reference.cost("S", 0), all / 100);
}

}  // namespace
}  // namespace weft
