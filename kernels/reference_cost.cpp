#include "kernels/reference_cost.hpp"

#include <algorithm>

namespace weft::reference {

namespace {

/// So many rows and columns of an operand, anywhere in it.
struct Extent {
  Index rows = 0, cols = 0;
  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }
  void join(const Extent& other) {
    rows = std::max(rows, other.rows);
    cols = std::max(cols, other.cols);
  }
};

Extent whole_extent(const View& view) { return {view.rows, view.cols}; }

Extent transposed_if(bool transposed, Extent extent) {
  return transposed ? Extent{extent.cols, extent.rows} : extent;
}

/// As many elements of a view as an extent of another shape holds.
Extent reshaped(Extent extent, const View& from, const View& to) {
  if (from.cols == to.cols) return {std::min(extent.rows, to.rows), extent.cols};
  const Index count = std::min(extent.rows * extent.cols, to.elements());
  const Index cols = std::min(count, to.cols);
  if (cols == 0) return {};
  return {std::min(to.rows, std::max(extent.rows, (count + cols - 1) / cols)), cols};
}

/// What an extent of one output needs of every operand, and the work beside that.
struct Needs {
  std::vector<Extent> in;
  double work = 0;
};

Needs gemm_needs(const Compute& op, Extent out) {
  const Index k = op.trans_a ? op.in[0].rows : op.in[0].cols;
  return {{transposed_if(op.trans_a, {out.rows, k}), transposed_if(op.trans_b, {k, out.cols})},
          out.elements() * static_cast<double>(k)};
}

/// Rows of one output row may come from any expert, so up to all experts are asked for.
Needs grouped_gemm_needs(const Compute& op, Extent out) {
  const View& b = op.in[1];
  const Index experts = std::max<Index>(1, op.experts > 0 ? op.experts : op.in[2].elements());
  const Index touched = std::min(experts, out.rows), stacked = b.rows / experts;
  const Index k = op.trans_b ? b.cols : stacked;
  const Extent factor =
      op.trans_b ? Extent{touched * std::min(out.cols, stacked), k} : Extent{touched * k, out.cols};
  return {{{out.rows, k}, factor, whole_extent(op.in[2])}, out.elements() * static_cast<double>(k)};
}

Needs grouped_wgrad_needs(const Compute& op, Extent out) {
  const Index tokens = op.in[0].rows;
  return {{{tokens, std::min(out.rows, op.in[0].cols)}, {tokens, out.cols}, whole_extent(op.in[2])},
          out.elements() * static_cast<double>(tokens)};
}

/// Whole rows of every operand that has the rows of the output.
Needs row_needs(const Compute& op, Extent out) {
  Needs needs;
  for (const View& view : op.in) {
    needs.in.push_back({std::min(out.rows, view.rows), view.cols});
    needs.work += 8 * needs.in.back().elements();
  }
  return needs;
}

Needs elementwise_needs(const Compute& op, Extent out) {
  Needs needs{{}, 8 * out.elements()};
  for (const View& view : op.in) needs.in.push_back({std::min(out.rows, view.rows), out.cols});
  return needs;
}

Needs permutation_needs(const Compute& op, int output, Extent out) {
  const auto index_operand = [&] { return whole_extent(op.in[1]); };
  const Index choices = op.kind == ComputeKind::unpermute_grad ? op.in[2].cols : op.in[1].cols;
  const Index rows = std::min(out.rows * choices, op.in[0].rows);
  const double work = out.elements() * static_cast<double>(choices);
  switch (op.kind) {
    case ComputeKind::permute:
      return {{{std::min(out.rows, op.in[0].rows), out.cols}, index_operand()}, out.elements()};
    case ComputeKind::permute_grad:
      return {{{rows, out.cols}, index_operand()}, work};
    case ComputeKind::unpermute:
      return {{{rows, out.cols}, index_operand(), {out.rows, choices}}, work};
    default:
      break;
  }
  const Extent indices = whole_extent(op.in[2]);
  if (output == 0) {
    const Index tokens = std::min(out.rows, op.in[0].rows);
    return {{{tokens, out.cols}, {}, indices, {tokens, choices}}, out.elements()};
  }
  const Index width = op.in[0].cols;
  return {{{out.rows, width}, {std::min(out.rows * choices, op.in[1].rows), width}, indices, {}},
          out.elements() * static_cast<double>(width)};
}

Needs sum_needs(const Compute& op, Extent out) {
  const Index rows = op.kind == ComputeKind::column_sum
                         ? op.in[0].rows
                         : op.in[0].rows / std::max<Index>(1, op.out[0].rows) * out.rows;
  const Extent terms{rows, out.cols};
  return {{terms}, 4 * terms.elements()};
}

Needs needs_of(const Compute& op, int output, Extent out) {
  switch (op.kind) {
    case ComputeKind::gemm:
      return gemm_needs(op, out);
    case ComputeKind::grouped_gemm:
      return grouped_gemm_needs(op, out);
    case ComputeKind::grouped_wgrad:
      return grouped_wgrad_needs(op, out);
    case ComputeKind::softmax:
    case ComputeKind::softmax_grad:
    case ComputeKind::layer_norm:
    case ComputeKind::top_k:
    case ComputeKind::top_k_grad:
      return row_needs(op, out);
    case ComputeKind::count_tokens:
      return {{whole_extent(op.in[0])}, whole_extent(op.in[0]).elements()};
    case ComputeKind::permute:
    case ComputeKind::permute_grad:
    case ComputeKind::unpermute:
    case ComputeKind::unpermute_grad:
      return permutation_needs(op, output, out);
    case ComputeKind::relayout:
    case ComputeKind::split_layout:
      return {{reshaped(out, op.out[0], op.in[0])}, out.elements()};
    case ComputeKind::reduce:
    case ComputeKind::column_sum:
      return sum_needs(op, out);
    default:
      return elementwise_needs(op, out);
  }
}

class CostPass {
 public:
  explicit CostPass(const Evaluator& evaluator)
      : evaluator_(evaluator), wanted_(static_cast<std::size_t>(evaluator.versions().count())) {}

  void want(const View& view, int before, Extent extent) {
    if (extent.elements() == 0) return;
    for (NodeId id : evaluator_.versions().writers(view, before)) {
      const View& writer = evaluator_.versions().node(id).view;
      wanted_[static_cast<std::size_t>(id)].join(
          writer.ld == view.ld
              ? Extent{std::min(extent.rows, writer.rows), std::min(extent.cols, writer.cols)}
              : reshaped(extent, view, writer));
    }
  }

  /// Nodes are numbered in the order of their steps, fills first; readers come after writers.
  double total() {
    for (NodeId id = evaluator_.versions().count(); id-- > 0;) {
      const Extent extent = wanted_[static_cast<std::size_t>(id)];
      if (extent.elements() > 0) visit(evaluator_.versions().node(id), extent);
    }
    return work_;
  }

 private:
  void visit(const Node& node, Extent extent) {
    constexpr double kGenerate = 4;
    if (node.step < 0) {
      work_ += kGenerate * extent.elements();
      return;
    }
    const FlatStep& step = evaluator_.steps()[static_cast<std::size_t>(node.step)];
    if (const auto* collective = std::get_if<Collective>(&step.op)) {
      work_ += extent.elements();
      want(collective->in, node.step, reshaped(extent, collective->out, collective->in));
      return;
    }
    const auto& op = std::get<Compute>(step.op);
    if (op.accumulate) want(node.view, node.step, extent);
    Needs needs = needs_of(op, node.output, extent);
    // A hinted selection is confirmed only for the tokens that a result comes from.
    const bool given = op.kind == ComputeKind::top_k && node.output == 0 &&
                       evaluator_.hinted(node.step, node.view);
    if (given) needs = {{{1, op.in[0].cols}}, extent.elements()};
    work_ += needs.work;
    for (std::size_t i = 0; i < needs.in.size(); ++i) want(op.in[i], node.step, needs.in[i]);
  }

  const Evaluator& evaluator_;
  std::vector<Extent> wanted_;
  double work_ = 0;
};

}  // namespace

double cost_of(const Evaluator& evaluator, const View& view, Index rows, Index cols) {
  CostPass pass(evaluator);
  pass.want(view, evaluator.end(), {rows, cols});
  return pass.total();
}

}  // namespace weft::reference
