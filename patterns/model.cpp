#include "patterns/model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {

namespace {

/// A shape without a vocabulary is a single linear layer of a figure: no attention, no norms, no
/// biases.
bool single_linear(const ModelShape& shape) { return shape.vocabulary == 0; }

/// The GPT family (learned positions) has biases in its linear layers and layer norms; the later
/// ones have neither.
bool has_biases(const ModelShape& shape) { return shape.positions > 0; }

Index norm_parameters(const ModelShape& shape) {
  return (has_biases(shape) ? 2 : 1) * shape.hidden;
}

/// 605,027,328 -> "605.0 M".
std::string short_count(Index count) {
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  return fmt::format("{}", count);
}

std::string or_dash(Index value) { return value > 0 ? fmt::format("{}", value) : "-"; }

}  // namespace

// Q and the output projection are h x h, K and V are h x (h*kv_heads/heads); each has a bias in the
// GPT family.
Index ModelShape::attention_parameters() const {
  if (single_linear(*this)) return 0;
  const Index kv_width = hidden / heads * kv_heads;
  const Index weights = 2 * hidden * hidden + 2 * hidden * kv_width;
  return weights + (has_biases(*this) ? 2 * hidden + 2 * kv_width : 0);
}

// An FFN is h x f and f x h (a gated one has a second h x f); a mixture has one per expert and the
// router h x E.
Index ModelShape::ffn_parameters() const {
  if (single_linear(*this)) return hidden * ffn;
  const Index matrices = act == Activation::swiglu ? 3 : 2;
  const Index one = matrices * hidden * ffn + (has_biases(*this) ? ffn + hidden : 0);
  return experts > 0 ? experts * one + hidden * experts : one;
}

// Blocks with two norms each, the last norm, the token table (twice where the output has its own),
// the position table.
Index ModelShape::total_parameters() const {
  const Index block = attention_parameters() + ffn_parameters();
  if (single_linear(*this)) return layers * block;
  const Index norms = (2 * layers + 1) * norm_parameters(*this);
  const Index tables = (tied_embeddings ? 1 : 2) * vocabulary + positions;
  return layers * block + norms + tables * hidden;
}

const ModelShape& find_model(std::string_view name) {
  const auto& all = models();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const ModelShape& shape) { return shape.name == name; });
  if (found != all.end()) return *found;
  std::string known;
  for (const ModelShape& shape : all) known += (known.empty() ? "" : ", ") + shape.name;
  fail_usage(fmt::format("there is no model '{}'; choose one of {}", name, known));
}

std::string list_models_text() {
  std::string text = fmt::format(
      "{:<13} {:>6} {:>6} {:>5} {:>3} {:>6} {:>5} {:>7} {:>5} {:>7} {:>9} {:>8} {:>10} {:>10} "
      "{:>10} {:>10}\n",
      "model", "hidden", "ffn", "heads", "kv", "layers", "seq", "experts", "top-k", "vocab",
      "positions", "act", "attention", "ffn/block", "blocks", "total");
  for (const ModelShape& m : models()) {
    const Index blocks = m.layers * (m.attention_parameters() + m.ffn_parameters());
    text += fmt::format(
        "{:<13} {:>6} {:>6} {:>5} {:>3} {:>6} {:>5} {:>7} {:>5} {:>7} {:>9} {:>8} {:>10} {:>10} "
        "{:>10} {:>10}\n",
        m.name, m.hidden, m.ffn, m.heads, m.kv_heads, m.layers, m.seq, or_dash(m.experts),
        or_dash(m.top_k), or_dash(m.vocabulary), or_dash(m.positions), to_string(m.act),
        short_count(m.attention_parameters()), short_count(m.ffn_parameters()), short_count(blocks),
        short_count(m.total_parameters()));
  }
  text +=
      "\nattention and ffn/block: parameters of one block (all experts and the router); blocks: of "
      "all layers without norms;\n"
      "total: with embeddings and norms. Sources:\n";
  for (const ModelShape& m : models()) text += fmt::format("  {:<13} {}\n", m.name, m.source);
  return text;
}

}  // namespace weft
