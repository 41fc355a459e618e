// Expert parallelism: every rank holds E/ep whole experts and T tokens of its own.
//   forward   router, softmax, top-k, permute; AllToAllV dispatch; expert networks; AllToAllV
//   combine; weighted sum.
//             M = T*k*h*e in each, uneven; a small AllToAll of the counts goes before
//   backward  the mirror: two more AllToAllV
// Rows arrive source by source, and by expert within a source: segment s belongs to local expert s
// % (E/ep).
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"
#include "patterns/expert_layer.hpp"
#include "patterns/registry.hpp"

namespace weft {

namespace {

void add_notes(Program& program, const ExpertRouting& routing, const Layout& layout, int index) {
  program.notes.push_back(fmt::format("{} experts, {} a rank, top {}; {} tokens, up to {} rows in",
                                      routing.experts, routing.experts_per_rank(), routing.top_k,
                                      routing.tokens[static_cast<std::size_t>(index)],
                                      routing.rows_received(index)));
  if (!routing.from_matrix && routing.capacity < routing.worst_rows) {
    program.notes.push_back(
        fmt::format("memory for {} rows of {} in the worst case; if more arrive the run fails, "
                    "nothing is dropped",
                    routing.capacity, routing.worst_rows));
  }
  if (layout.etp() > 1) {
    program.notes.push_back(fmt::format(
        "experts are whole on each of the {} expert-tensor-parallel ranks, which do the same work",
        layout.etp()));
  }
}

Program make(const ModelShape& model, const Layout& layout, const PatternOptions& options,
             Rank rank) {
  require_one_way("moe-alltoall", options.direction);
  const ExpertRouting routing = make_expert_routing(model, layout, options);
  const int index = layout.coordinates(rank).ep;
  Program program;
  ExpertLayer layer(program, model, options, routing, layout.group(Dimension::ep, rank), index);
  const bool forward = options.direction == Direction::forward;
  StepList first(forward ? program.steps : program.prologue, Direction::forward, Dimension::ep);
  layer.forward(first, forward);
  if (!forward) {
    StepList steps(program.steps, Direction::backward, Dimension::ep);
    layer.backward(steps);
  }
  add_notes(program, routing, layout, index);
  return program;
}

Program make_reference(const ModelShape& model, const Layout& layout,
                       const PatternOptions& options) {
  require_one_way("moe-alltoall", options.direction);
  const ExpertRouting routing = make_expert_routing(model, layout, options);
  Program program;
  ExpertLayer layer(program, model, options, routing);
  const bool forward = options.direction == Direction::forward;
  StepList first(forward ? program.steps : program.prologue, Direction::forward, Dimension::ep);
  layer.forward(first, forward);
  if (!forward) {
    StepList steps(program.steps, Direction::backward, Dimension::ep);
    layer.backward(steps);
  }
  return program;
}

/// FNV-1a of the counts: tells two matrices apart in a row without printing them.
std::uint64_t fingerprint(const std::vector<std::vector<Index>>& matrix) {
  std::uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](std::uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (value >> (8 * byte) & 0xFF)) * 1099511628211u;
    }
  };
  for (const auto& row : matrix) {
    mix(row.size());
    for (Index count : row) mix(static_cast<std::uint64_t>(count));
  }
  return hash;
}

std::vector<std::string> option_texts(const PatternOptions& options) {
  std::vector<std::string> texts;
  if (options.experts != 0) texts.push_back(fmt::format("experts={}", options.experts));
  if (!options.token_matrix.empty()) {
    texts.push_back(fmt::format("token_matrix={:016x}", fingerprint(options.token_matrix)));
    return texts;
  }
  texts.push_back(fmt::format("skew={}", options.skew));
  if (options.top_k != 0) texts.push_back(fmt::format("top_k={}", options.top_k));
  return texts;
}

}  // namespace

const Pattern& moe_alltoall_pattern() {
  static const Pattern pattern{
      .name = "moe-alltoall",
      .summary = "mixture of experts: AllToAllV dispatch and combine of routed tokens",
      .dim = Dimension::ep,
      .directions = {Direction::forward, Direction::backward},
      .sweep = {CollectiveKind::all_to_all_v},
      .default_model = "tiny",
      .make = make,
      .make_reference = make_reference,
      .option_texts = option_texts};
  return pattern;
}

}  // namespace weft
