// A pattern's programs, played, against its reference, played.
#include "patterns_play.hpp"

#include <fmt/format.h>

#include <cmath>

namespace weft::play {

ModelShape small_model(Activation act) {
  ModelShape model;
  model.name = "small";
  model.hidden = 8;
  model.ffn = 12;
  model.heads = model.kv_heads = 2;
  model.layers = 4;
  model.seq = 8;
  model.experts = 8;
  model.top_k = 2;
  model.act = act;
  return model;
}

std::vector<Program> programs_of(const Pattern& pattern, const ModelShape& model,
                                 const Layout& layout, const PatternOptions& options) {
  std::vector<Program> programs;
  for (Rank r = 0; r < layout.world(); ++r)
    programs.push_back(pattern.make(model, layout, options, r));
  return programs;
}

namespace {

std::string compare(World& world, World& reference, int rank) {
  for (const Tensor& t : world.program(rank).tensors) {
    if (!t.check) continue;
    if (!reference.has(0, t.name)) return fmt::format("the reference lacks '{}'", t.name);
    for (int s = 0; s < t.slots; ++s) {
      for (Index r = 0; r < t.rows; ++r) {
        for (Index c = 0; c < t.cols; ++c) {
          const double actual = world.at(rank, t.name, s, r, c);
          const double expected =
              reference.at(0, t.name, s + t.slot_offset, r + t.row_offset, c + t.col_offset);
          if (std::abs(actual - expected) <= 1e-9 * (1 + std::abs(expected))) continue;
          return fmt::format("rank {} '{}' slot {} ({}, {}): {} for {}", rank, t.name, s, r, c,
                             actual, expected);
        }
      }
    }
  }
  return "";
}

}  // namespace

std::string difference(const Pattern& pattern, const ModelShape& model, const LayoutSpec& spec,
                       int world, const PatternOptions& options, First first, int iterations) {
  const Layout layout = Layout::make(spec, world);
  std::vector<Program> programs = programs_of(pattern, model, layout, options);
  for (const Program& program : programs) validate(program);
  validate_world(programs);
  World played(std::move(programs));
  Program whole = pattern.make_reference(model, layout, options);
  validate(whole);
  World reference({std::move(whole)});
  played.run(first, iterations);
  reference.run();
  for (Rank r = 0; r < world; ++r) {
    std::string text = compare(played, reference, r);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace weft::play
