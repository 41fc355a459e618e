// How the gradients of a stack of feed-forward layers lie in one contiguous buffer, and how that is
// cut into buckets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "patterns/pattern.hpp"

namespace weft {

/// A weight or bias of one layer, [rows x cols] from `offset` of the buffer.
struct Parameter {
  std::string name;
  int layer = 0;
  Index rows = 0, cols = 0;
  Index offset = 0;

  Index elements() const { return rows * cols; }
};

/// Elements [offset, offset + elements) of the buffer; with sharded optimizers the last few are
/// padding.
struct Bucket {
  Index offset = 0, elements = 0;
  std::size_t last = 0;  // index of the parameter whose gradient is ready last
};

/// Parameters stand in reverse order of the forward pass, which is the order in which backward
/// makes their gradients.
struct GradientPlan {
  int layers = 0;                  // of this rank's pipeline stage
  Index hidden = 0, ffn = 0;       // ffn of this rank's tensor-parallel share
  std::vector<std::string> names;  // of one layer, in buffer order
  std::vector<Parameter> parameters;
  std::vector<Bucket> buckets;
  Index elements = 0;  // of the buffer, padding included
  Index padding = 0;
  int replicas = 1;  // d: ranks that hold these parameters

  /// Index of a layer's parameter.
  std::size_t find(std::string_view name, int layer) const;
};

/// A bucket closes at the first parameter boundary at which it holds `bucket_mib` or more, so that
/// ceil(Phi*g/bucket) is an estimate of their number; with `zero` each is padded to a multiple of
/// d. Throws Error(usage) if layers do not divide by pp, ffn not by tp, or the bucket size is not
/// above 0.
GradientPlan make_gradient_plan(const ModelShape& model, const Layout& layout,
                                const PatternOptions& options);

}  // namespace weft
