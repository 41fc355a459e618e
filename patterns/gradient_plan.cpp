#include "patterns/gradient_plan.hpp"

#include <fmt/format.h>

#include "patterns/builder.hpp"
#include "patterns/error.hpp"

namespace weft {

std::size_t GradientPlan::find(std::string_view name, int layer) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<std::size_t>(layers - 1 - layer) * names.size() + i;
  }
  fail_usage(fmt::format("a layer has no parameter '{}'; it has {} of them", name, names.size()));
}

namespace {

/// Reverse of W1, b1, W2, b2; a gated network has W_gate, W_up, W2 and no biases.
std::vector<std::string> names_of_layer(const ModelShape& model, const PatternOptions& options) {
  if (model.act == Activation::swiglu) return {"W2", "W_up", "W_gate"};
  if (has_bias(model, options)) return {"b2", "W2", "b1", "W1"};
  return {"W2", "W1"};
}

Parameter parameter(const GradientPlan& plan, const std::string& name, int layer) {
  Parameter p;
  p.name = name;
  p.layer = layer;
  const bool second = name.back() == '2';
  p.rows = name.front() == 'b' ? 1 : second ? plan.ffn : plan.hidden;
  p.cols = second ? plan.hidden : plan.ffn;
  return p;
}

void close_bucket(GradientPlan& plan, Index offset, bool zero) {
  Bucket bucket;
  bucket.offset = offset;
  bucket.last = plan.parameters.size() - 1;
  const Index used = plan.elements - offset;
  bucket.elements = zero ? padded(used, plan.replicas) : used;
  plan.padding += bucket.elements - used;
  plan.elements = offset + bucket.elements;
  plan.buckets.push_back(bucket);
}

}  // namespace

GradientPlan make_gradient_plan(const ModelShape& model, const Layout& layout,
                                const PatternOptions& options) {
  if (!(options.bucket_mib > 0)) {
    fail_usage(fmt::format("a bucket of {} MiB holds nothing; choose --bucket-mib above 0",
                           options.bucket_mib));
  }
  GradientPlan plan;
  plan.layers = static_cast<int>(
      divide_exactly(layers_of(model, options), layout.size(Dimension::pp), "layers", "pp"));
  plan.hidden = model.hidden;
  plan.ffn = divide_exactly(model.ffn, layout.size(Dimension::tp), "ffn", "tp");
  plan.names = names_of_layer(model, options);
  plan.replicas = layout.gradient_group(0).ranks.size();
  const double limit = options.bucket_mib * 1024 * 1024;
  Index begin = 0;
  for (int layer = plan.layers; layer-- > 0;) {
    for (const std::string& name : plan.names) {
      plan.parameters.push_back(parameter(plan, name, layer));
      plan.parameters.back().offset = plan.elements;
      plan.elements += plan.parameters.back().elements();
      const Bytes held = (plan.elements - begin) * size_of(options.grad_dtype);
      if (static_cast<double>(held) < limit) continue;
      close_bucket(plan, begin, options.zero);
      begin = plan.elements;
    }
  }
  if (plan.elements > begin) close_bucket(plan, begin, options.zero);
  return plan;
}

}  // namespace weft
