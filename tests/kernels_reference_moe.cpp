// The reference's mixture of experts: against a naive router and experts, and finite
// differences.
#include <algorithm>

#include "kernels_reference.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

using namespace reference_test;

constexpr double kExact = 1e-12, kDifference = 1e-8;
constexpr Index kTokens = 13, kHidden = 6, kFfn = 5, kExperts = 4, kChoices = 2;

/// A router and experts of one matrix each, forward and backward, with everything in between
/// visible.
struct Moe : TestProgram {
  View x, p, idx, w, s, b, e, y, counts;

  explicit Moe(bool normalize = true, std::vector<std::int32_t> given = {}) {
    x = input("X", kTokens, kHidden);
    p = input("P", kTokens, kExperts, 1.0, Fill::positive);
    b = input("B", kExperts * kHidden, kFfn);
    const bool routed = given.empty();
    idx = integers("idx", kTokens, kChoices, std::move(given));
    w = routed ? output("W", kTokens, kChoices) : input("W", kTokens, kChoices);
    counts = integers("counts", 1, kExperts);
    s = output("S", kTokens * kChoices, kHidden);
    e = output("E", kTokens * kChoices, kFfn);
    y = output("Y", kTokens, kFfn);
    if (routed) {
      then({.kind = ComputeKind::top_k,
            .in = {p},
            .out = {idx, w},
            .normalize = normalize,
            .experts = kExperts});
    }
    moe(ComputeKind::count_tokens, {idx}, {counts});
    moe(ComputeKind::permute, {x, idx}, {s});
    moe(ComputeKind::grouped_gemm, {s, b, counts}, {e});
    moe(ComputeKind::unpermute, {e, idx, w}, {y});
  }
  void moe(ComputeKind kind, std::vector<View> in, std::vector<View> out, bool accumulate = false) {
    then({.kind = kind,
          .in = std::move(in),
          .out = std::move(out),
          .accumulate = accumulate,
          .experts = kExperts});
  }
};

/// The naive way: every token walks to its experts.
std::vector<Index> chosen_by(const Matrix& p, Index token) {
  std::vector<Index> experts;
  while (experts.size() < kChoices) {
    Index best = -1;
    for (Index e = 0; e < p.cols; ++e) {
      const bool taken = std::find(experts.begin(), experts.end(), e) != experts.end();
      if (!taken && (best < 0 || p(token, e) > p(token, best))) best = e;
    }
    experts.push_back(best);
  }
  return experts;
}

Matrix weights_of(const Matrix& p, bool normalize) {
  Matrix w(kTokens, kChoices);
  for (Index t = 0; t < kTokens; ++t) {
    const auto experts = chosen_by(p, t);
    for (Index c = 0; c < kChoices; ++c) {
      const double total = normalize ? p(t, experts[0]) + p(t, experts[1]) : 1.0;
      w(t, c) = p(t, experts[static_cast<std::size_t>(c)]) / total;
    }
  }
  return w;
}

/// Rows of S and which (token, choice) each is, by the definition of the order.
std::vector<std::pair<Index, Index>> order_of(const Matrix& p) {
  std::vector<std::pair<Index, Index>> order;
  for (Index e = 0; e < kExperts; ++e) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index c = 0; c < kChoices; ++c) {
        if (chosen_by(p, t)[static_cast<std::size_t>(c)] == e) order.emplace_back(t, c);
      }
    }
  }
  return order;
}

Matrix permuted(const Matrix& x, const Matrix& p) {
  Matrix s(kTokens * kChoices, x.cols);
  const auto order = order_of(p);
  for (Index r = 0; r < s.rows; ++r) {
    for (Index c = 0; c < x.cols; ++c) s(r, c) = x(order[static_cast<std::size_t>(r)].first, c);
  }
  return s;
}

Matrix unpermuted(const Matrix& s, const Matrix& w, const Matrix& p) {
  Matrix y(kTokens, s.cols);
  const auto order = order_of(p);
  for (Index r = 0; r < s.rows; ++r) {
    const auto [token, choice] = order[static_cast<std::size_t>(r)];
    for (Index c = 0; c < s.cols; ++c) y(token, c) += w(token, choice) * s(r, c);
  }
  return y;
}

TEST(ReferenceMoe, ForwardWalksEveryTokenToItsExperts) {
  for (const bool normalize : {false, true}) {
    const Moe moe(normalize);
    const Matrix p = moe.data(moe.p), x = moe.data(moe.x), b = moe.data(moe.b);
    const Matrix weights = weights_of(p, normalize);
    Matrix expected(kTokens, kFfn), counts(1, kExperts);
    for (Index t = 0; t < kTokens; ++t) {
      for (Index c = 0; c < kChoices; ++c) {
        const Index expert = chosen_by(p, t)[static_cast<std::size_t>(c)];
        counts(0, expert) += 1;
        for (Index f = 0; f < kFfn; ++f) {
          for (Index k = 0; k < kHidden; ++k) {
            expected(t, f) += weights(t, c) * x(t, k) * b(expert * kHidden + k, f);
          }
        }
      }
    }
    expect_near(moe.values(moe.w), weights, kExact);
    expect_near(moe.values(moe.counts), counts, 0);
    expect_near(moe.values(moe.s), permuted(x, p), 0);
    expect_near(moe.values(moe.y), expected, kExact);
  }
}

TEST(ReferenceMoe, TiesGoToTheSmallerIndex) {
  TestProgram p;
  const View probabilities = p.input("P", 2, 5, 0.5, Fill::constant);
  const View idx = p.integers("idx", 2, 3), w = p.output("W", 2, 3);
  p.then({.kind = ComputeKind::top_k, .in = {probabilities}, .out = {idx, w}, .experts = 5});
  EXPECT_EQ(p.values(idx).data, (std::vector<double>{0, 1, 2, 0, 1, 2}));
}

TEST(ReferenceMoe, GivenIndicesRouteToo) {
  std::vector<std::int32_t> given;
  for (int i = 0; i < kTokens; ++i)
    given.insert(given.end(), {(i + 1) % 4, i % 3 == 2 ? 3 : i % 4});
  const Moe moe(true, given);
  const Matrix x = moe.data(moe.x), s = moe.values(moe.s);
  Index row = 0;
  for (int e = 0; e < kExperts; ++e) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] != e) continue;
      for (Index c = 0; c < kHidden; ++c) {
        EXPECT_EQ(s(row, c), x(static_cast<Index>(i) / kChoices, c));
      }
      ++row;
    }
  }
}

TEST(ReferenceMoe, TopKGradient) {
  for (const bool normalize : {false, true}) {
    Moe moe(normalize);
    const View dw = moe.input("dW", kTokens, kChoices), dp = moe.output("dP", kTokens, kExperts);
    moe.then({.kind = ComputeKind::top_k_grad,
              .in = {dw, moe.idx, moe.p},
              .out = {dp},
              .normalize = normalize,
              .experts = kExperts});
    const auto f = [&](const Matrix& p) { return weights_of(p, normalize); };
    expect_near(moe.values(dp), numeric_gradient(f, moe.data(moe.p), moe.data(dw), 1e-6), 1e-7);
  }
}

TEST(ReferenceMoe, PermuteGradientAlsoAccumulating) {
  Moe moe;
  const View ds = moe.input("dS", kTokens * kChoices, kHidden);
  const View dx = moe.output("dX", kTokens, kHidden), more = moe.input("more", kTokens, kHidden);
  moe.moe(ComputeKind::permute_grad, {ds, moe.idx}, {dx});
  moe.moe(ComputeKind::permute_grad, {ds, moe.idx}, {more}, true);
  const Matrix p = moe.data(moe.p);
  const auto f = [&](const Matrix& x) { return permuted(x, p); };
  Matrix expected = numeric_gradient(f, moe.data(moe.x), moe.data(ds));
  expect_near(moe.values(dx), expected, kDifference);
  for (std::size_t i = 0; i < expected.data.size(); ++i) {
    expected.data[i] += moe.data(more).data[i];
  }
  expect_near(moe.values(more), expected, kDifference);
}

TEST(ReferenceMoe, UnpermuteGradients) {
  Moe moe;
  const View dy = moe.input("dY", kTokens, kHidden),
             in = moe.input("in", kTokens * kChoices, kHidden);
  const View ds = moe.output("dS", kTokens * kChoices, kHidden),
             dw = moe.output("dW", kTokens, kChoices);
  moe.moe(ComputeKind::unpermute_grad, {dy, in, moe.idx, moe.w}, {ds, dw});
  const Matrix p = moe.data(moe.p), w = weights_of(p, true), s = moe.data(in);
  const auto by_s = [&](const Matrix& m) { return unpermuted(m, w, p); };
  const auto by_w = [&](const Matrix& m) { return unpermuted(s, m, p); };
  expect_near(moe.values(ds), numeric_gradient(by_s, s, moe.data(dy)), kDifference);
  expect_near(moe.values(dw), numeric_gradient(by_w, w, moe.data(dy)), kDifference);
}

TEST(ReferenceMoe, GroupedGradients) {
  Moe moe;
  const View de = moe.input("dE", kTokens * kChoices, kFfn);
  const View ds = moe.output("dS", kTokens * kChoices, kHidden);
  const View db = moe.output("dB", kExperts * kHidden, kFfn);
  moe.then({.kind = ComputeKind::grouped_gemm,
            .in = {de, moe.b, moe.counts},
            .out = {ds},
            .trans_b = true,
            .experts = kExperts});
  moe.moe(ComputeKind::grouped_wgrad, {moe.s, de, moe.counts}, {db});
  const Matrix p = moe.data(moe.p);
  const auto experts = [&](const Matrix& s, const Matrix& b) {
    Matrix e(kTokens * kChoices, kFfn);
    const auto order = order_of(p);
    for (Index r = 0; r < e.rows; ++r) {
      const auto [token, choice] = order[static_cast<std::size_t>(r)];
      const Index expert = chosen_by(p, token)[static_cast<std::size_t>(choice)];
      for (Index f = 0; f < kFfn; ++f) {
        for (Index k = 0; k < kHidden; ++k) e(r, f) += s(r, k) * b(expert * kHidden + k, f);
      }
    }
    return e;
  };
  const Matrix s = permuted(moe.data(moe.x), p), b = moe.data(moe.b);
  const auto by_s = [&](const Matrix& m) { return experts(m, b); };
  const auto by_b = [&](const Matrix& m) { return experts(s, m); };
  expect_near(moe.values(ds), numeric_gradient(by_s, s, moe.data(de)), kDifference);
  expect_near(moe.values(db), numeric_gradient(by_b, b, moe.data(de)), kDifference);
  // Sampled alone, without the rest:
  Reference sampled(moe.program, kSeed);
  EXPECT_EQ(sampled.element("dB", 0, 3 * kHidden + 2, 4).value, moe.values(db)(3 * kHidden + 2, 4));
}

/// Sequences of segments go round the experts: what arrives from several ranks.
TEST(ReferenceMoe, SegmentsGoRoundTheExperts) {
  TestProgram p;
  const View a = p.input("A", 10, 3), b = p.input("B", 2 * 3, 4), d = p.input("D", 10, 4);
  const View counts = p.integers("counts", 1, 4, {3, 0, 2, 5});
  const View c = p.output("C", 10, 4), g = p.output("G", 2 * 3, 4);
  p.then({.kind = ComputeKind::grouped_gemm, .in = {a, b, counts}, .out = {c}, .experts = 2});
  p.then({.kind = ComputeKind::grouped_wgrad, .in = {a, d, counts}, .out = {g}, .experts = 2});
  const Matrix da = p.data(a), db = p.data(b), dd = p.data(d);
  Matrix expected_c(10, 4), expected_g(6, 4);
  for (Index r = 0; r < 10; ++r) {
    const Index expert = r < 5 ? 0 : 1;
    for (Index n = 0; n < 4; ++n) {
      for (Index k = 0; k < 3; ++k) {
        expected_c(r, n) += da(r, k) * db(expert * 3 + k, n);
        expected_g(expert * 3 + k, n) += da(r, k) * dd(r, n);
      }
    }
  }
  expect_near(p.values(c), expected_c, kExact);
  expect_near(p.values(g), expected_g, kExact);
}

TEST(ReferenceHints, ChoicesMustBeDistinctExperts) {
  const Moe moe;
  std::vector<std::int32_t> hint;
  for (double choice : moe.values(moe.idx).data) hint.push_back(static_cast<std::int32_t>(choice));
  Reference reference(moe.program, kSeed);
  reference.hint("idx", hint);
  EXPECT_EQ(moe.values(reference, moe.y).data, moe.values(moe.y).data);
  auto twice = hint;
  twice[1] = twice[0];
  reference.hint("idx", twice);
  EXPECT_THROW(reference.element("W", 0, 0, 0), Error);
  auto beyond = hint;
  beyond[5] = kExperts;
  reference.hint("idx", beyond);
  EXPECT_THROW(reference.element("W", 0, 2, 0), Error);
  EXPECT_THROW(reference.element("Y", 0, 2, 0), Error);
  EXPECT_THROW(reference.hint("idx", {1, 2, 3}), Error);
  EXPECT_THROW(reference.hint("W", hint), Error);
}

}  // namespace
}  // namespace weft
