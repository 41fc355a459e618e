// The table of model shapes. Numbers are those of the published configurations named in `source`.
#include "patterns/model.hpp"

namespace weft {

namespace {

std::vector<ModelShape> small_shapes() {
  return {
      {.name = "tiny",
       .hidden = 64,
       .ffn = 256,
       .heads = 4,
       .kv_heads = 4,
       .layers = 2,
       .seq = 32,
       .experts = 8,
       .top_k = 2,
       .vocabulary = 512,
       .positions = 128,
       .source = "weft's own, small enough to verify whole; every pattern uses it, dense ones "
                 "ignore the experts"},
      {.name = "tiny-moe",
       .hidden = 64,
       .ffn = 128,
       .heads = 4,
       .kv_heads = 4,
       .layers = 2,
       .seq = 64,
       .experts = 8,
       .top_k = 1,
       .vocabulary = 512,
       .act = Activation::relu,
       .source = "weft's own, top-1 as in Switch Transformer (arXiv:2101.03961)"},
      {.name = "fig-1-10",
       .hidden = 8,
       .ffn = 4,
       .heads = 1,
       .kv_heads = 1,
       .layers = 1,
       .seq = 1,
       .act = Activation::relu,
       .source =
           "one linear layer of 8 inputs and 4 neurons, figure 1-10; ffn is its output width"},
  };
}

std::vector<ModelShape> gpt_shapes() {
  return {
      {.name = "gpt2-small",
       .hidden = 768,
       .ffn = 3072,
       .heads = 12,
       .kv_heads = 12,
       .layers = 12,
       .seq = 1024,
       .vocabulary = 50257,
       .positions = 1024,
       .source = "openai-community/gpt2 config.json"},
      {.name = "gpt3-175b",
       .hidden = 12288,
       .ffn = 49152,
       .heads = 96,
       .kv_heads = 96,
       .layers = 96,
       .seq = 2048,
       .vocabulary = 50257,
       .positions = 2048,
       .source = "arXiv:2005.14165 table 2.1; vocabulary of GPT-2"},
  };
}

ModelShape llama3(std::string name, Index hidden, Index ffn, int heads, int layers,
                  std::string source) {
  return {.name = std::move(name),
          .hidden = hidden,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = 8,
          .layers = layers,
          .seq = 8192,
          .vocabulary = 128256,
          .act = Activation::swiglu,
          .tied_embeddings = false,
          .source = std::move(source)};
}

std::vector<ModelShape> expert_shapes() {
  return {
      {.name = "switch-base",
       .hidden = 768,
       .ffn = 3072,
       .heads = 12,
       .kv_heads = 12,
       .layers = 12,
       .seq = 512,
       .experts = 128,
       .top_k = 1,
       .vocabulary = 32128,
       .act = Activation::relu,
       .source =
           "google/switch-base-128 config.json; approximation: only the 12 sparse ones of its 24 "
           "encoder and decoder blocks are counted, without cross-attention and relative "
           "positions"},
      {.name = "mixtral-8x7b",
       .hidden = 4096,
       .ffn = 14336,
       .heads = 32,
       .kv_heads = 8,
       .layers = 32,
       .seq = 4096,
       .experts = 8,
       .top_k = 2,
       .vocabulary = 32000,
       .act = Activation::swiglu,
       .tied_embeddings = false,
       .source = "mistralai/Mixtral-8x7B-v0.1 config.json, arXiv:2401.04088"},
      {.name = "deepseek-v3",
       .hidden = 7168,
       .ffn = 2048,
       .heads = 128,
       .kv_heads = 128,
       .layers = 61,
       .seq = 4096,
       .experts = 256,
       .top_k = 8,
       .vocabulary = 129280,
       .act = Activation::swiglu,
       .tied_embeddings = false,
       .source = "arXiv:2412.19437; approximation: latent attention counted as multi-head "
                 "attention (206 M a "
                 "block for the real 187 M), all 61 blocks as mixtures (3 are dense), no shared "
                 "expert, no "
                 "multi-token prediction: 702 B in place of the published 671 B"},
  };
}

std::vector<ModelShape> all_shapes() {
  std::vector<ModelShape> shapes = small_shapes();
  const auto append = [&shapes](std::vector<ModelShape> more) {
    for (ModelShape& shape : more) shapes.push_back(std::move(shape));
  };
  append(gpt_shapes());
  append({llama3("llama3-8b", 4096, 14336, 32, 32, "meta-llama/Meta-Llama-3-8B config.json"),
          llama3("llama3-70b", 8192, 28672, 64, 80, "meta-llama/Meta-Llama-3-70B config.json"),
          llama3("llama3-405b", 16384, 53248, 128, 126,
                 "meta-llama/Llama-3.1-405B config.json, arXiv:2407.21783")});
  append(expert_shapes());
  return shapes;
}

}  // namespace

const std::vector<ModelShape>& models() {
  static const std::vector<ModelShape> shapes = all_shapes();
  return shapes;
}

}  // namespace weft
