// The scenes of tensor parallelism: the book's halved layer (S4), the note's column- and
// row-parallel linears (S14, S15) and sequence parallelism (S19).
#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/scenes.hpp"

namespace weft {

namespace {

/// What the texts calculate with.
struct Linear {
  Index tokens, hidden, ffn;
  Bytes element;
  int ways;

  Linear(const ModelShape& model, const Layout& layout, const PatternOptions& options)
      : tokens(tokens_of(model, options)),
        hidden(model.hidden),
        ffn(model.ffn),
        element(size_of(options.dtype)),
        ways(layout.size(Dimension::tp)) {}

  Part columns(int rank) const { return part_of(ffn, ways, rank); }
  Bytes of_output() const { return tokens * ffn * element; }     // T*f*e
  Bytes of_hidden() const { return tokens * hidden * element; }  // T*h*e
  Bytes share(Bytes message) const { return message * (ways - 1) / ways; }
};

std::string bytes_of_element(Bytes element) { return fmt::format("{} bytes an element", element); }

/// "n1, n2" or, where there are many, "n1 to n384".
std::string neurons(Part part) {
  if (part.size == 0) return "none";
  if (part.size == 1) return fmt::format("n{}", part.begin + 1);
  if (part.size > 4) return fmt::format("n{} to n{}", part.begin + 1, part.begin + part.size);
  std::string text;
  for (Index i = 0; i < part.size; ++i) {
    text += fmt::format("{}n{}", i == 0 ? "" : ", ", part.begin + i + 1);
  }
  return text;
}

// ---- S4 ----

void halve_layer(PatternOptions& options, LayoutSpec& layout) {
  layout.tp = 2;
  options.direction = Direction::forward;
  options.sequence_parallel = false;
  options.bias = false;
}

void who_holds_what(SceneText& text, const Linear& l) {
  text.section("Who holds what");
  text.row(
      "weights",
      fmt::format("{}, one row per neuron: {}", shape_text(l.ffn, l.hidden), neurons({0, l.ffn})),
      fmt::format("{}, one column per neuron; this is how weft stores them",
                  shape_text(l.hidden, l.ffn)));
  for (int r = 0; r < l.ways; ++r) {
    const Part part = l.columns(r);
    text.row(
        fmt::format("GPU{} (TP Rank {}, rank {})", r, r, r),
        fmt::format("rows {} of the weights: {}, {}", neurons(part),
                    shape_text(part.size, l.hidden), bytes_text(part.size * l.hidden * l.element)),
        fmt::format("columns {} to {}: {}, the same bytes", part.begin + 1, part.begin + part.size,
                    shape_text(l.hidden, part.size)));
  }
}

void exchange_halves(SceneText& text, const Linear& l) {
  text.section("Steps");
  text.row("1 inputs", fmt::format("{} on every GPU", shape_text(l.tokens, l.hidden)));
  for (int r = 0; r < l.ways; ++r) {
    const Part part = l.columns(r);
    text.row(fmt::format("2 GPU{} computes", r),
             fmt::format("{} * {} -> partial output {} of {}", shape_text(l.tokens, l.hidden),
                         shape_text(l.hidden, part.size), shape_text(l.tokens, part.size),
                         neurons(part)));
  }
  for (int r = 0; r < l.ways; ++r) {
    const Part part = l.columns(r);
    text.row(fmt::format("3 GPU{} sends", r),
             fmt::format("the outputs of {}, {}, to {} over scale_up (AllGather)", neurons(part),
                         bytes_text(l.tokens * part.size * l.element),
                         l.ways == 2 ? fmt::format("GPU{}", 1 - r)
                                     : fmt::format("each of the {} others", l.ways - 1)));
  }
  text.row(
      "4 re-layout", "the whole output is there",
      fmt::format("blocks arrive rank by rank; a compute step makes rows of {} of them", l.ffn));
  text.row("5 partial outputs", "freed on both GPUs after the exchange",
           "freed in inference; training keeps what backward needs (Z of its own neurons)");
}

std::string text_s4(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const Linear l(model, layout, options);
  SceneText text(
      "S4", "tensor parallelism, one layer divided over the GPUs of a node (figures 1-10, 1-11)");
  text.line(fmt::format("{} inputs, {} neurons {}, T = {} tokens, {}", l.hidden, l.ffn,
                        neurons({0, l.ffn}), l.tokens, bytes_of_element(l.element)));
  who_holds_what(text, l);
  exchange_halves(text, l);
  text.section("Bytes");
  text.row("weights", fmt::format("{} in all", bytes_text(l.ffn * l.hidden * l.element)));
  text.row("gathered output M", bytes_text(l.of_output()));
  text.row("after the layer", "an AllGather after every layer",
           "a row-parallel layer follows a column-parallel one: no AllGather between them");
  return text.text();
}

// ---- S14, S15 ----

void plain(PatternOptions& options, LayoutSpec&) { options.sequence_parallel = false; }

std::string text_s14(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const Linear l(model, layout, options);
  const Part mine = l.columns(0);
  SceneText text("S14", "column-parallel linear with AllGather");
  text.line(fmt::format("A = [A1 | .. | A{}] by columns, {} ranks, {}", l.ways, l.ways,
                        bytes_of_element(l.element)));
  text.section("Forward");
  text.row("X", fmt::format("{} on every rank", shape_text(l.tokens, l.hidden)));
  text.row("Ai", fmt::format("{}, rank 0 (TP Rank 0)", shape_text(l.hidden, mine.size)));
  text.row("Yi = act(X Ai)", shape_text(l.tokens, mine.size));
  text.row("AllGather of Y",
           fmt::format("every rank to the {} others over scale_up: M = T*f*e = {}", l.ways - 1,
                       bytes_text(l.of_output())));
  text.row("a rank sends", fmt::format("M*(t-1)/t = {}", bytes_text(l.share(l.of_output()))));
  text.section("Backward");
  text.row("dZi = dYi * act'(Zi)", "local: dY is on every rank, each takes its columns");
  text.row("AllReduce of dX",
           fmt::format("the sum of dZi Ai^T over the ranks: M = T*h*e = {}, a rank sends {}",
                       bytes_text(l.of_hidden()), bytes_text(2 * l.share(l.of_hidden()))));
  text.row("dAi = X^T dZi", "local; computed while dX is summed");
  return text.text();
}

std::string text_s15(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const Linear l(model, layout, options);
  const Part mine = l.columns(0);
  SceneText text("S15", "row-parallel linear with AllReduce");
  text.line(fmt::format("A = [A1; ..; A{}] by rows, {} ranks, {}", l.ways, l.ways,
                        bytes_of_element(l.element)));
  text.section("Forward");
  text.row("Xi", fmt::format("{}, rank 0 (TP Rank 0): its columns of the layer before",
                             shape_text(l.tokens, mine.size)));
  text.row("Ai", shape_text(mine.size, l.hidden));
  text.row("Yi = Xi Ai", fmt::format("{}: a share of the sum", shape_text(l.tokens, l.hidden)));
  text.row("AllReduce of Y", fmt::format("all ranks with one another over scale_up: M = T*h*e = {}",
                                         bytes_text(l.of_hidden())));
  text.row("a rank sends", fmt::format("2*M*(t-1)/t = {} by a ring or direct scatter",
                                       bytes_text(2 * l.share(l.of_hidden()))));
  text.row("bias", "added once, after the sum");
  text.section("Backward");
  text.row("dXi = dY Ai^T", "local: dY is on every rank");
  text.row("dAi = Xi^T dY", "local; nothing is sent");
  return text.text();
}

// ---- S19 ----

void sequence_parallel(PatternOptions& options, LayoutSpec&) { options.sequence_parallel = true; }

std::string text_s19(const ModelShape& model, const Layout& layout, const PatternOptions& options) {
  const Linear l(model, layout, options);
  const Bytes message = l.of_hidden(), share = l.share(message);
  SceneText text("S19", "sequence parallelism: ReduceScatter and AllGather in place of AllReduce");
  text.line(fmt::format("M = T*h*e = {} over {} ranks (scale_up); each moves M*(t-1)/t = {}",
                        bytes_text(message), l.ways, bytes_text(share)));
  text.section("Forward, a row-parallel linear and the column-parallel one after it: a rank sends");
  text.row("without", fmt::format("AllReduce {}", bytes_text(2 * share)));
  text.row("with", fmt::format("ReduceScatter {} + AllGather {}: the same", bytes_text(share),
                               bytes_text(share)));
  text.section("Backward");
  text.row("without", fmt::format("AllReduce of dX {}", bytes_text(2 * share)));
  text.row("with", fmt::format("ReduceScatter of dX + AllGather of dY: {}, the same as forward",
                               bytes_text(2 * share)));
  text.row("X again for dA",
           fmt::format("one AllGather more, {} in all; --keep-gathered saves it for {} of memory a "
                       "layer",
                       bytes_text(3 * share), bytes_text(message)));
  text.section("Activations between the linears (norm, dropout, residual), per tensor");
  text.row("without", bytes_text(message));
  text.row("with", fmt::format("1/{} of it: {}", l.ways, bytes_text(message / l.ways)));
  text.line("What was split over tp before stays as it was.");
  return text.text();
}

}  // namespace

std::vector<Scene> tensor_parallel_scenes() {
  constexpr std::string_view s19 = "sequence parallelism in place of AllReduce";
  return {
      {"S4", "tp-allgather", "a layer of 4 x 8 weights halved over two ranks", 2, "fig-1-10",
       halve_layer, text_s4},
      {"S14", "tp-allgather", "column-parallel linear with AllGather", 2, "", plain, text_s14},
      {"S15", "row-allreduce", "row-parallel linear with AllReduce", 2, "", plain, text_s15},
      {"S19", "row-allreduce", s19, 2, "", sequence_parallel, text_s19},
      {"S19", "tp-allgather", s19, 2, "", sequence_parallel, text_s19},
  };
}

}  // namespace weft
