// Which experts a token goes to: top_k with its gradient, and the counts per expert.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/moe_host.hpp"
#include "patterns/error.hpp"

namespace weft::host {

void check_expert(std::int32_t expert, Index experts) {
  if (expert >= 0 && expert < experts) return;
  fail(ExitCode::failed,
       fmt::format("a token's expert is {}, there are experts 0 to {}", expert, experts - 1));
}

namespace {

class TopK final : public BoundCompute {
 public:
  explicit TopK(const Operands& o)
      : p_(o.in[0]),
        indices_(o.out[0]),
        weights_(o.out[1]),
        normalize_(o.op.normalize),
        row_(static_cast<std::size_t>(p_.cols)),
        taken_(row_.size()),
        chosen_(static_cast<std::size_t>(weights_.cols)) {}

  void run() override {
    const std::size_t k = chosen_.size();
    for (Index token = 0; token < p_.rows; ++token) {
      const float* p = read(p_, token, 0, p_.cols, row_.data());
      auto* index = reinterpret_cast<std::int32_t*>(address(indices_, token, 0));
      std::fill(taken_.begin(), taken_.end(), char{0});
      for (std::size_t c = 0; c < k; ++c) {
        const std::size_t best = largest_free(p);
        taken_[best] = 1;
        chosen_[c] = p[best];
        index[c] = static_cast<std::int32_t>(best);
      }
      if (normalize_) normalise();
      from_f32(address(weights_, token, 0), chosen_.data(), weights_.dtype, weights_.cols);
    }
  }

 private:
  /// Of equal ones the first; a row with NaN still yields a valid index.
  std::size_t largest_free(const float* p) const {
    std::size_t best = taken_.size();
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (!taken_[i] && (best == taken_.size() || p[i] > p[best])) best = i;
    }
    return best;
  }

  void normalise() {
    float sum = 0.0f;
    for (const float value : chosen_) sum += value;
    for (float& value : chosen_) value /= sum;
  }

  BoundView p_, indices_, weights_;
  bool normalize_;
  std::vector<float> row_;
  std::vector<char> taken_;
  std::vector<float> chosen_;
};

/// Plain: dP at a chosen expert is dW of its choice. Renormalised, W_c = P_c / s with s the sum of
/// the chosen, and so dP = (dW_c - sum_j dW_j W_j) / s. Zero at all others.
class TopKGrad final : public BoundCompute {
 public:
  explicit TopKGrad(const Operands& o)
      : dw_(o.in[0]),
        indices_(o.in[1]),
        p_(o.in[2]),
        dp_(o.out[0]),
        normalize_(o.op.normalize),
        grad_(static_cast<std::size_t>(dw_.cols)),
        p_row_(static_cast<std::size_t>(p_.cols)),
        dp_row_(p_row_.size()) {}

  void run() override {
    const std::span<const std::int32_t> indices = integers(indices_);
    const std::size_t k = grad_.size();
    for (Index token = 0; token < p_.rows; ++token) {
      const auto chosen = indices.subspan(static_cast<std::size_t>(token) * k, k);
      to_f32(grad_.data(), address(dw_, token, 0), dw_.dtype, dw_.cols);
      for (const std::int32_t expert : chosen) check_expert(expert, p_.cols);
      if (normalize_) through_normalisation(read(p_, token, 0, p_.cols, p_row_.data()), chosen);
      std::fill(dp_row_.begin(), dp_row_.end(), 0.0f);
      for (std::size_t c = 0; c < k; ++c) dp_row_[static_cast<std::size_t>(chosen[c])] = grad_[c];
      from_f32(address(dp_, token, 0), dp_row_.data(), dp_.dtype, dp_.cols);
    }
  }

 private:
  void through_normalisation(const float* p, std::span<const std::int32_t> chosen) {
    float sum = 0.0f, weighted = 0.0f;
    for (std::size_t c = 0; c < chosen.size(); ++c) {
      sum += p[chosen[c]];
      weighted += grad_[c] * p[chosen[c]];
    }
    for (float& value : grad_) value = (value - weighted / sum) / sum;
  }

  BoundView dw_, indices_, p_, dp_;
  bool normalize_;
  std::vector<float> grad_, p_row_, dp_row_;
};

class CountTokens final : public BoundCompute {
 public:
  explicit CountTokens(const Operands& o) : indices_(o.in[0]), counts_(o.out[0]) {}

  void run() override {
    auto* counts = reinterpret_cast<std::int32_t*>(counts_.data);
    const Index experts = counts_.elements();
    std::fill_n(counts, experts, 0);
    for (const std::int32_t expert : integers(indices_)) {
      check_expert(expert, experts);
      ++counts[expert];
    }
  }

 private:
  BoundView indices_, counts_;
};

Bound bind_top_k(const Operands& o) {
  o.expect_count(1, 2);
  o.expect_float(o.in[0]);
  o.expect_integers(o.out[0]);
  o.expect_float(o.out[1]);
  o.expect_same_shape(o.out[0], o.out[1]);
  o.expect(o.out[1].rows == o.in[0].rows, "needs a row of choices for each token");
  o.expect(o.out[1].cols <= o.in[0].cols, "cannot choose more experts than there are");
  return std::make_unique<TopK>(o);
}

Bound bind_top_k_grad(const Operands& o) {
  o.expect_count(3, 1);
  o.expect_float(o.in[0]);
  o.expect_integers(o.in[1]);
  o.expect_float(o.in[2]);
  o.expect_float(o.out[0]);
  o.expect_same_shape(o.in[0], o.in[1]);
  o.expect_same_shape(o.in[2], o.out[0]);
  o.expect(o.in[0].rows == o.in[2].rows, "needs a row of choices for each token");
  return std::make_unique<TopKGrad>(o);
}

}  // namespace

Bound bind_routing(const Operands& o) {
  if (o.op.kind == ComputeKind::top_k) return bind_top_k(o);
  if (o.op.kind == ComputeKind::top_k_grad) return bind_top_k_grad(o);
  o.expect_count(1, 1);
  o.expect_integers(o.in[0]);
  o.expect_integers(o.out[0]);
  return std::make_unique<CountTokens>(o);
}

}  // namespace weft::host
