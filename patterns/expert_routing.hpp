// Who holds which tokens and experts of an expert-parallel group, and how many rows a rank may
// receive.
#pragma once

#include <cstdint>
#include <vector>

#include "patterns/pattern.hpp"

namespace weft {

/// Sizes of one expert-parallel group. With a token matrix every token of it goes to one expert of
/// the rank that the matrix names, with weight 1; without one, the router decides.
struct ExpertRouting {
  int ranks = 1;    // EP degree
  int experts = 0;  // E, of the group
  int top_k = 1;
  bool from_matrix = false;
  std::vector<Index> tokens;               // of every rank; with a matrix the sums of its rows
  std::vector<std::vector<Index>> matrix;  // [from][to] rows; empty without a matrix
  Index worst_rows =
      0;  // without a matrix: all tokens choose this rank, as often as top-k lets them
  Index capacity =
      1;  // rows that a rank can receive, at least 1; the same on all ranks without a matrix

  int experts_per_rank() const { return experts / ranks; }
  Index all_tokens() const;
  Index first_token(int rank) const;
  /// Rows that `rank` sends and receives: tokens*k, and with a matrix the sum of its column (else
  /// the capacity).
  Index rows_sent(int rank) const;
  Index rows_received(int rank) const;
  /// The expert of each token of `rank`, [tokens x 1]; with a matrix only. Destinations take turns,
  /// and so do the experts of one destination.
  std::vector<std::int32_t> choices(int rank) const;
};

/// Throws Error(usage) on a model without experts, experts that do not divide by ep, more ranks
/// than experts, a top_k that is not in 1..experts, a negative skew, a matrix that is not ep x ep
/// or has negative entries.
ExpertRouting make_expert_routing(const ModelShape& model, const Layout& layout,
                                  const PatternOptions& options);

}  // namespace weft
