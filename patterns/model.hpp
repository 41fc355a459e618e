// Model shapes: the public configuration of the networks whose layers the patterns compute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

struct ModelShape {
  std::string name;
  Index hidden = 0;  // h
  Index ffn = 0;     // f; of one expert where the model is a mixture
  int heads = 0;     // a
  int kv_heads = 0;  // = heads without grouped-query attention
  int layers = 0;    // L
  Index seq = 0;     // s, the default sequence length of a micro-batch
  int experts = 0;   // 0: dense
  int top_k = 0;
  Index vocabulary = 0;
  Index positions = 0;  // learned position embeddings; 0: none (rotary)
  Activation act = Activation::gelu;
  bool tied_embeddings = true;
  std::string source;  // where the numbers are published

  /// Parameters by part. Formulas are beside the definitions; gpt3-175b gives about 605 M, 1.2 B,
  /// 175 B.
  Index attention_parameters() const;  // of one block, with biases where the model has them
  Index ffn_parameters() const;        // of one block, all experts
  Index total_parameters() const;      // with embeddings and norms
};

/// All known shapes, in the order `--list-models` prints them.
const std::vector<ModelShape>& models();
/// Throws Error(usage) that lists the known names.
const ModelShape& find_model(std::string_view name);
/// The table of `--list-models`.
std::string list_models_text();

}  // namespace weft
