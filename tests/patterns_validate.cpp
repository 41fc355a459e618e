// What validate() refuses of one rank's program.
#include "patterns_validate.hpp"

namespace weft {
namespace {

// ---- Compute shapes
// -------------------------------------------------------------------------------------------------

struct Shape {
  Index rows, cols;
  DType dtype = DType::f32;
};

struct ShapeCase {
  std::string name;
  Compute op;
  std::vector<Shape> in, out;
};

Program one_step(const ShapeCase& example) {
  Program p;
  Compute op = example.op;
  for (const Shape& s : example.in) op.in.push_back(p.whole(add(p, "in", s.rows, s.cols, s.dtype)));
  for (const Shape& s : example.out)
    op.out.push_back(p.whole(add(p, "out", s.rows, s.cols, s.dtype)));
  if (op.kind == ComputeKind::sgd) op.out = {op.in[0]};
  if (op.kind == ComputeKind::adam) op.out = {op.in[0], op.in[2], op.in[3]};
  p.then(Step{.op = op});
  return p;
}

constexpr DType kInt = DType::i32;

// T = 6 tokens, h = 4, E = 3 experts, k = 2 choices, n = 5.
std::vector<ShapeCase> good_shapes() {
  using K = ComputeKind;
  const auto swiglu = Activation::swiglu;
  return {
      {"gemm", {.kind = K::gemm}, {{6, 4}, {4, 5}}, {{6, 5}}},
      {"gemm_ta", {.kind = K::gemm, .trans_a = true}, {{4, 6}, {4, 5}}, {{6, 5}}},
      {"gemm_tb", {.kind = K::gemm, .trans_b = true}, {{6, 4}, {5, 4}}, {{6, 5}}},
      {"grouped",
       {.kind = K::grouped_gemm, .experts = 3},
       {{6, 4}, {12, 5}, {2, 3, kInt}},
       {{6, 5}}},
      {"grouped_tb",
       {.kind = K::grouped_gemm, .trans_b = true, .experts = 3},
       {{6, 4}, {15, 4}, {1, 3, kInt}},
       {{6, 5}}},
      {"wgrad",
       {.kind = K::grouped_wgrad, .experts = 3},
       {{6, 4}, {6, 5}, {1, 3, kInt}},
       {{12, 5}}},
      {"bias", {.kind = K::bias}, {{6, 4}, {1, 4}}, {{6, 4}}},
      {"gelu", {.kind = K::activation, .act = Activation::gelu}, {{6, 4}}, {{6, 4}}},
      {"swiglu", {.kind = K::activation, .act = swiglu}, {{6, 4}, {6, 4}}, {{6, 4}}},
      {"gelu_grad",
       {.kind = K::activation_grad, .act = Activation::gelu},
       {{6, 4}, {6, 4}},
       {{6, 4}}},
      {"swiglu_grad",
       {.kind = K::activation_grad, .act = swiglu},
       {{6, 4}, {6, 4}, {6, 4}},
       {{6, 4}, {6, 4}}},
      {"softmax", {.kind = K::softmax}, {{6, 3}}, {{6, 3}}},
      {"softmax_grad", {.kind = K::softmax_grad}, {{6, 3}, {6, 3}}, {{6, 3}}},
      {"layer_norm", {.kind = K::layer_norm}, {{6, 4}, {1, 4}, {1, 4}}, {{6, 4}}},
      {"top_k", {.kind = K::top_k, .experts = 3}, {{6, 3}}, {{6, 2, kInt}, {6, 2}}},
      {"top_k_grad",
       {.kind = K::top_k_grad, .experts = 3},
       {{6, 2}, {6, 2, kInt}, {6, 3}},
       {{6, 3}}},
      {"count_tokens", {.kind = K::count_tokens, .experts = 3}, {{6, 2, kInt}}, {{1, 3, kInt}}},
      {"permute", {.kind = K::permute, .experts = 3}, {{6, 4}, {6, 2, kInt}}, {{12, 4}}},
      {"permute_grad", {.kind = K::permute_grad, .experts = 3}, {{12, 4}, {6, 2, kInt}}, {{6, 4}}},
      {"unpermute",
       {.kind = K::unpermute, .experts = 3},
       {{12, 4}, {6, 2, kInt}, {6, 2}},
       {{6, 4}}},
      {"unpermute_grad",
       {.kind = K::unpermute_grad, .experts = 3},
       {{6, 4}, {12, 4}, {6, 2, kInt}, {6, 2}},
       {{12, 4}, {6, 2}}},
      {"relayout", {.kind = K::relayout, .counts = {3, 2}}, {{1, 30}}, {{6, 5}}},
      {"split_layout", {.kind = K::split_layout, .counts = {3, 2}}, {{6, 5}}, {{1, 30}}},
      {"reduce", {.kind = K::reduce}, {{18, 4}}, {{6, 4}}},
      {"column_sum", {.kind = K::column_sum}, {{6, 4}}, {{1, 4}}},
      {"copy", {.kind = K::copy}, {{6, 4}}, {{6, 4, DType::bf16}}},
      {"copy_int", {.kind = K::copy}, {{6, 4, kInt}}, {{6, 4, kInt}}},
      {"scale", {.kind = K::scale, .factor = 0.5}, {{6, 4}}, {{6, 4}}},
      {"add", {.kind = K::add}, {{6, 4}, {6, 4}}, {{6, 4}}},
      {"sgd", {.kind = K::sgd}, {{6, 4}, {6, 4}}, {}},
      {"adam", {.kind = K::adam}, {{6, 4}, {6, 4}, {6, 4}, {6, 4}}, {}},
  };
}

TEST(ValidateCompute, AcceptsTheConventionOfEveryKind) {
  for (const ShapeCase& example : good_shapes())
    EXPECT_EQ(error_of(one_step(example)), "") << example.name;
}

// The rows of a gemm's C may be told by A alone, and the width of a wgrad by D alone, so one size
// too many must show in every operand of every kind, whichever it is.
TEST(ValidateCompute, RefusesOneColumnTooManyInAnyOperand) {
  for (const ShapeCase& example : good_shapes()) {
    for (std::size_t i = 0; i < example.in.size() + example.out.size(); ++i) {
      ShapeCase wrong = example;
      Shape& shape = i < wrong.in.size() ? wrong.in[i] : wrong.out[i - wrong.in.size()];
      const bool any_width = example.name == "count_tokens" && i == 0;  // any k may be counted
      if (any_width) continue;
      ++shape.cols;
      EXPECT_NE(error_of(one_step(wrong)), "") << example.name << " operand " << i;
    }
  }
}

TEST(ValidateCompute, RefusesTheWrongNumberOfOperandsAndTypes) {
  for (const ShapeCase& example : good_shapes()) {
    ShapeCase more = example;
    more.in.push_back({6, 4});
    expect_parts(error_of(one_step(more)), {"it takes", "operands"});
    if (example.op.kind == ComputeKind::copy) continue;
    for (std::size_t i = 0; i < example.in.size(); ++i) {
      ShapeCase other = example;
      other.in[i].dtype = other.in[i].dtype == kInt ? DType::f32 : kInt;
      expect_parts(error_of(one_step(other)), {"is stored as"});
    }
  }
}

TEST(ValidateCompute, NamesStepOperandAndSizes) {
  Program p = one_step({"", {.kind = ComputeKind::gemm}, {{6, 4}, {3, 5}}, {{6, 5}}});
  p.steps[0].label = "Y = XA";
  expect_parts(error_of(p), {"step 0 'Y = XA'", "gemm", "6x4", "3x5", "4 and 3"});
}

TEST(ValidateCompute, ResultsDoNotOverlapInputsUnlessElementwise) {
  Program p;
  const TensorId x = add(p, "X", 4, 4);
  const View all = p.whole(x);
  p.then(Step{.op = Compute{.kind = ComputeKind::scale, .in = {all}, .out = {all}}});
  EXPECT_EQ(error_of(p), "");
  p.then(Step{.op = Compute{.kind = ComputeKind::gemm, .in = {all, all}, .out = {all}}});
  expect_parts(error_of(p), {"step 1", "C overlaps A"});
  // Shifted by a row, an elementwise step would read what it has just written.
  p.steps[1].op = Compute{.kind = ComputeKind::copy,
                          .in = {rows_of(p.tensors[0], x, 0, 2)},
                          .out = {rows_of(p.tensors[0], x, 1, 2)}};
  expect_parts(error_of(p), {"Y overlaps X"});
}

TEST(ValidateCompute, ColumnBlocksSideBySideDoNotOverlap) {
  Program p;
  const TensorId x = add(p, "X", 4, 4);
  const View left{.tensor = x, .rows = 4, .cols = 2, .ld = 4};
  View right = left;
  right.offset = 2;
  p.then(Step{.op = Compute{.kind = ComputeKind::copy, .in = {left}, .out = {right}}});
  EXPECT_EQ(error_of(p), "");
  std::get<Compute>(p.steps[0].op).out[0].offset = 1;
  expect_parts(error_of(p), {"overlaps"});
}

TEST(ValidateCompute, OptimisersUpdateInPlace) {
  Program p = one_step({"", {.kind = ComputeKind::sgd}, {{6, 4}, {6, 4}}, {}});
  std::get<Compute>(p.steps[0].op).out = {p.whole(add(p, "W2", 6, 4))};
  expect_parts(error_of(p), {"updated in place"});
  Program adam =
      one_step({"", {.kind = ComputeKind::adam, .step = 0}, {{2, 2}, {2, 2}, {2, 2}, {2, 2}}, {}});
  expect_parts(error_of(adam), {"counts from 1"});
}

// ---- Structure of one rank's program
// --------------------------------------------------------------------------------

Program copies(int count) {
  Program p;
  const TensorId x = add(p, "X", 2, 3);
  const TensorId y = p.add(Tensor{.name = "Y", .rows = 2, .cols = 3});
  for (int i = 0; i < count; ++i) {
    p.then(Step{.op = Compute{.kind = ComputeKind::copy, .in = {p.whole(x)}, .out = {p.whole(y)}}});
  }
  return p;
}

View& input(Program& p, std::size_t step = 0) { return std::get<Compute>(p.steps[step].op).in[0]; }

TEST(Validate, ViewsLieInsideTheirTensors) {
  EXPECT_EQ(error_of(copies(2)), "");
  const auto with = [](auto&& change) {
    Program p = copies(1);
    change(input(p));
    return error_of(p);
  };
  expect_parts(with([](View& v) { v.tensor = 7; }), {"tensor 7", "has 2"});
  expect_parts(with([](View& v) { v.tensor = -1; }), {"tensor -1"});
  expect_parts(with([](View& v) { v.slot = 1; }), {"slot 1 of 'X'", "has 1"});
  expect_parts(with([](View& v) { v.offset = 1; }), {"ends at element 7", "has 6"});
  expect_parts(with([](View& v) { v.ld = 2; }), {"ld 2"});
  expect_parts(with([](View& v) { v.slot_per = {1, 0}; }), {"repeats that it is not in"});
}

TEST(Validate, DependenciesPointBack) {
  const auto with = [](std::vector<Dependency> after) {
    Program p = copies(3);
    p.steps[1].after = std::move(after);
    return error_of(p);
  };
  EXPECT_EQ(with({{.step = 0}}), "");
  expect_parts(with({{.step = 1}}), {"step 1", "no earlier"});
  expect_parts(with({{.step = 2}}), {"step 2"});
  expect_parts(with({{.step = 3}}), {"has 3 steps"});
  expect_parts(with({{.step = -1}}), {"step -1"});
  expect_parts(with({{.step = 0, .distance = 1}}), {"only inside a repeat"});
}

TEST(Validate, InARepeatEarlierRoundsOfLaterStepsMayBeNamed) {
  Program p = copies(2);
  Repeat repeat{.count = 3, .body = p.steps};
  repeat.body[0].after = {{.step = 1, .distance = 1}};
  p.steps = {Step{.op = repeat}};
  EXPECT_EQ(error_of(p), "");
  std::get<Repeat>(p.steps[0].op).body[0].after = {{.step = 1}};
  expect_parts(error_of(p), {"step 0 body 0", "no earlier"});
  std::get<Repeat>(p.steps[0].op).count = -1;
  expect_parts(error_of(p), {"repeats -1 times"});
}

TEST(Validate, WhatIsReadMustBeFilledOrWritten) {
  Program p = copies(1);
  p.tensors[0].fill = Fill::none;
  expect_parts(error_of(p), {"step 0", "'X'", "Fill"});
  p.prologue = {
      Step{.op = Compute{.kind = ComputeKind::scale, .in = {p.whole(1)}, .out = {p.whole(0)}}}};
  EXPECT_EQ(error_of(p), "");
}

TEST(Validate, TensorsFitTheirGlobalShape) {
  Program p = copies(1);
  p.tensors[0].col_offset = 1;
  expect_parts(error_of(p), {"tensor 'X'", "outside the global 2x3"});
  p = copies(1);
  p.tensors[0].fill = Fill::values;
  expect_parts(error_of(p), {"lists 0 values of f32"});
}

struct CommCase {
  Program program;
  Collective op;

  CommCase(CollectiveKind kind, Index in, Index out, int members = 2) {
    op.kind = kind;
    op.group =
        program.add(Group{.dim = Dimension::tp, .ranks = {.base = 0, .axes = {{members, 1}}}});
    op.in = program.whole(add(program, "in", 1, in));
    op.out = program.whole(add(program, "out", 1, out));
  }
  std::string error() {
    program.steps = {Step{.op = op, .stream = StreamRole::comm}};
    return error_of(program);
  }
};

TEST(ValidateCollective, CountsHaveOneEntryPerMemberAndSumToTheBuffer) {
  CommCase c(CollectiveKind::all_gather, 3, 5);
  c.op.counts = {3, 2};
  EXPECT_EQ(c.error(), "");
  c.op.counts = {3, 3};
  expect_parts(c.error(), {"sums to 6", "has 5"});
  c.op.counts = {5};
  expect_parts(c.error(), {"1 entries for 2 members"});
  c.op.counts = {4, 1};
  expect_parts(c.error(), {"in has 3 elements"});
  c.op.counts = {6, -1};
  expect_parts(c.error(), {"negative"});
}

TEST(ValidateCollective, SizesFitTheKind) {
  expect_parts(CommCase(CollectiveKind::all_reduce, 4, 5).error(), {"4 elements and out 5"});
  CommCase scatter(CollectiveKind::reduce_scatter, 5, 2);
  scatter.op.counts = {3, 2};
  EXPECT_EQ(scatter.error(), "");
  CommCase exchange(CollectiveKind::all_to_all_v, 5, 2);
  exchange.op.counts = {3, 2};
  exchange.op.recv_counts = {2, 0};
  EXPECT_EQ(exchange.error(), "");
  exchange.op.recv_counts = {2, 1};
  expect_parts(exchange.error(), {"recv_counts sums to 3"});
  CommCase root(CollectiveKind::broadcast, 4, 4);
  root.op.root = 2;
  expect_parts(root.error(), {"root 2"});
  root.op.root = 1;
  root.op.in = View{};  // only the root needs an input
  EXPECT_EQ(root.error(), "");
}

TEST(ValidateCollective, AllReduceIsOutOfPlaceAndOfOneType) {
  CommCase c(CollectiveKind::all_reduce, 4, 4);
  c.op.out = c.op.in;
  expect_parts(c.error(), {"overlap"});
  CommCase mixed(CollectiveKind::all_reduce, 4, 4);
  mixed.program.tensors[1].dtype = DType::bf16;
  expect_parts(mixed.error(), {"in is f32 and out is bf16"});
  CommCase strided(CollectiveKind::all_reduce, 8, 4);
  strided.op.in.rows = 2;
  strided.op.in.cols = 2;
  strided.op.in.ld = 4;
  expect_parts(strided.error(), {"not contiguous"});
}

TEST(ValidateCollective, CountsOfTheRunAreIntegersForEveryPeer) {
  CommCase c(CollectiveKind::all_to_all_v, 12, 24);
  c.op.run_time = CountsRef{.send = c.program.whole(add(c.program, "send", 1, 6, kInt)),
                            .recv = c.program.whole(add(c.program, "recv", 1, 6, kInt)),
                            .per_peer = 3,
                            .row_elements = 4};
  EXPECT_EQ(c.error(), "");
  c.op.run_time->row_elements = 5;
  expect_parts(c.error(), {"rows of 5"});
  c.op.run_time->row_elements = 4;
  c.op.run_time->per_peer = 2;
  expect_parts(c.error(), {"must hold 4 i32 counts"});
}

TEST(ValidateMessage, PeersAreMembersAndBuffersApart) {
  Program p;
  const GroupId g = p.add(Group{.dim = Dimension::pp, .ranks = {.base = 0, .axes = {{2, 1}}}});
  const View x = p.whole(add(p, "X", 1, 4));
  p.then(Step{.op = SendRecv{.send = true, .group = g, .peer = 2, .data = x}});
  expect_parts(error_of(p), {"peer 2", "the last is 1"});
  p.steps[0].op = PostedTogether{{{.send = true, .group = g, .peer = 1, .data = x},
                                  {.send = false, .group = g, .peer = 1, .data = x}}};
  expect_parts(error_of(p), {"in flight together overlap"});
  p.steps[0].op = SendRecv{.send = true, .group = 3, .peer = 1, .data = x};
  expect_parts(error_of(p), {"group 3"});
}

}  // namespace
}  // namespace weft
