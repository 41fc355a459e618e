// The scene of expert parallelism (S20).
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/expert_routing.hpp"
#include "patterns/scenes.hpp"

namespace weft {

namespace {

void as_given(PatternOptions&, LayoutSpec&) {}

void steps_of(SceneText& text, const ExpertRouting& routing, const ModelShape& model) {
  const int each = routing.experts_per_rank();
  text.section("Who holds what");
  for (int r = 0; r < routing.ranks && r < 8; ++r) {
    text.row(fmt::format("EP Rank {}", r),
             fmt::format("experts E{} to E{}, {} tokens of its own", r * each, (r + 1) * each - 1,
                         routing.tokens[static_cast<std::size_t>(r)]));
  }
  if (routing.ranks > 8) text.line(fmt::format("and {} ranks more", routing.ranks - 8));
  text.section("Forward");
  text.row("1 router", fmt::format("{} * {} -> scores, softmax, top {}",
                                   shape_text(routing.tokens[0], model.hidden),
                                   shape_text(model.hidden, routing.experts), routing.top_k));
  text.row("2 counts", fmt::format("every rank tells every other its rows per expert: {}",
                                   bytes_text(Bytes{routing.experts} * 4)));
  text.row("3 dispatch", "all-to-all: every token to the ranks of its experts");
  text.row("4 experts",
           fmt::format("{} then {}, rows in groups by expert", shape_text(model.hidden, model.ffn),
                       shape_text(model.ffn, model.hidden)));
  text.row("5 combine", "all-to-all: every result back to the rank of its token");
  text.row("6 sum", "of a token's results, weighted by the router");
  text.section("Backward");
  text.row("mirror", "two more all-to-all, for the gradients of results and of rows");
}

void bytes_of(SceneText& text, const ExpertRouting& routing, const ModelShape& model,
              Bytes element) {
  text.section("Bytes of a rank, dispatch and combine each, if the router is balanced");
  for (int k : {1, 2, 8}) {
    if (k > routing.experts) continue;
    const Bytes logical = routing.tokens[0] * k * model.hidden * element;
    const Bytes physical = logical * (routing.ranks - 1) / routing.ranks;
    text.row(fmt::format("top {}{}", k, k == 1 ? " (Switch)" : ""),
             fmt::format("logical M = T*k*h*e = {}, off the rank {}", bytes_text(logical),
                         bytes_text(physical)));
  }
  text.row("imbalance",
           "--skew makes the first experts hot, a token matrix gives every pair its count");
  text.row("capacity", "nothing is dropped: a rank that cannot hold its rows ends the run");
  text.row("network", "scale_up inside a node, scale_out between nodes");
}

std::string text_s20(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const ExpertRouting routing = make_expert_routing(model, layout, options);
  SceneText text("S20", "mixture of experts with all-to-all");
  text.line(fmt::format("{} experts over {} ranks, top {}, {} bytes an element", routing.experts,
                        routing.ranks, routing.top_k, size_of(options.dtype)));
  steps_of(text, routing, model);
  bytes_of(text, routing, model, size_of(options.dtype));
  return text.text();
}

}  // namespace

std::vector<Scene> expert_scenes() {
  return {{"S20", "moe-alltoall", "mixture of experts with all-to-all, top-1, top-2, top-8", 2, "",
           as_given, text_s20}};
}

}  // namespace weft
