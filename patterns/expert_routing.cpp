#include "patterns/expert_routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"

namespace weft {

namespace {

constexpr Bytes kSmallBuffers = Bytes{64} << 20;  // up to here a rank takes the worst case
constexpr double kMargin = 1.5;                   // above it: this times the expectation, and
constexpr Index kSpareRows = 64;                  // a few rows, which is much where there are few

void check_experts(const ModelShape& model, const ExpertRouting& routing) {
  if (routing.experts < 1) {
    fail_usage(
        fmt::format("model {} has no experts; choose --experts, or a mixture such as tiny, "
                    "mixtral-8x7b or deepseek-v3",
                    model.name));
  }
  if (routing.ranks > routing.experts) {
    fail_usage(fmt::format("ep {} is more than {} experts; choose --ep {} or less, or --experts {}",
                           routing.ranks, routing.experts, routing.experts, routing.ranks));
  }
  divide_exactly(routing.experts, routing.ranks, "experts", "ep");
  if (routing.top_k < 1 || routing.top_k > routing.experts) {
    fail_usage(fmt::format("top-k {} of {} experts is not possible; choose 1 to {}", routing.top_k,
                           routing.experts, routing.experts));
  }
}

void check_matrix(const std::vector<std::vector<Index>>& matrix, int ranks) {
  const auto rows = static_cast<int>(matrix.size());
  for (const auto& row : matrix) {
    if (rows != ranks || static_cast<int>(row.size()) != ranks) {
      fail_usage(fmt::format(
          "the token matrix is {} x {} but ep is {}; give {} x {} counts, or choose another --ep",
          rows, row.size(), ranks, ranks, ranks));
    }
    for (Index count : row) {
      if (count < 0) {
        fail_usage(
            fmt::format("the token matrix has the count {}; counts must be 0 or more", count));
      }
    }
  }
}

/// Expected share of a token's choices that the busiest rank gets: with a Zipf bias the first
/// experts are the likely ones, each chosen with probability of at most k*p_j.
double busiest_share(const ExpertRouting& routing, double skew) {
  double total = 0, first = 0;
  for (int j = 0; j < routing.experts; ++j) total += std::pow(1.0 + j, -skew);
  for (int j = 0; j < routing.experts_per_rank(); ++j) {
    first += std::min(1.0, routing.top_k * std::pow(1.0 + j, -skew) / total);
  }
  return first;
}

void set_capacity(ExpertRouting& routing, const ModelShape& model, const PatternOptions& options) {
  const Index all = routing.all_tokens();
  routing.worst_rows = all * std::min(routing.top_k, routing.experts_per_rank());
  const Bytes row = (model.hidden + 2 * model.ffn) * size_of(options.dtype);
  routing.capacity = std::max<Index>(1, routing.worst_rows);
  if (routing.worst_rows * row <= kSmallBuffers) return;
  const double expected = static_cast<double>(all) * busiest_share(routing, options.skew);
  routing.capacity =
      std::min(routing.worst_rows, static_cast<Index>(std::ceil(kMargin * expected)) + kSpareRows);
}

}  // namespace

Index ExpertRouting::all_tokens() const {
  return std::accumulate(tokens.begin(), tokens.end(), Index{0});
}

Index ExpertRouting::first_token(int rank) const {
  return std::accumulate(tokens.begin(), tokens.begin() + rank, Index{0});
}

Index ExpertRouting::rows_sent(int rank) const {
  return tokens[static_cast<std::size_t>(rank)] * top_k;
}

Index ExpertRouting::rows_received(int rank) const {
  if (!from_matrix) return capacity;
  Index sum = 0;
  for (const auto& row : matrix) sum += row[static_cast<std::size_t>(rank)];
  return sum;
}

std::vector<std::int32_t> ExpertRouting::choices(int rank) const {
  std::vector<Index> left = matrix[static_cast<std::size_t>(rank)];
  std::vector<int> turn(left.size(), 0);
  std::vector<std::int32_t> chosen;
  chosen.reserve(static_cast<std::size_t>(tokens[static_cast<std::size_t>(rank)]));
  while (static_cast<Index>(chosen.size()) < tokens[static_cast<std::size_t>(rank)]) {
    for (std::size_t to = 0; to < left.size(); ++to) {
      if (left[to] == 0) continue;
      --left[to];
      const int expert = static_cast<int>(to) * experts_per_rank() + turn[to];
      turn[to] = (turn[to] + 1) % experts_per_rank();
      chosen.push_back(expert);
    }
  }
  return chosen;
}

ExpertRouting make_expert_routing(const ModelShape& model, const Layout& layout,
                                  const PatternOptions& options) {
  ExpertRouting routing;
  routing.ranks = layout.size(Dimension::ep);
  routing.experts = options.experts != 0 ? options.experts : model.experts;
  routing.from_matrix = !options.token_matrix.empty();
  routing.top_k = options.top_k != 0 ? options.top_k : std::max(1, model.top_k);
  if (routing.from_matrix) routing.top_k = 1;
  check_experts(model, routing);
  if (!(options.skew >= 0) || std::isinf(options.skew)) {
    fail_usage(fmt::format("a skew of {} is not possible; choose --skew 0 or more", options.skew));
  }
  if (!routing.from_matrix) {
    routing.tokens.assign(static_cast<std::size_t>(routing.ranks), tokens_of(model, options));
    set_capacity(routing, model, options);
    return routing;
  }
  check_matrix(options.token_matrix, routing.ranks);
  routing.matrix = options.token_matrix;
  for (const auto& row : routing.matrix) {
    routing.tokens.push_back(std::accumulate(row.begin(), row.end(), Index{0}));
  }
  return routing;
}

}  // namespace weft
