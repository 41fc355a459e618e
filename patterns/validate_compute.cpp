#include "patterns/validate_compute.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace weft {

namespace {

bool same_place(const View& a, const View& b) {
  return a.tensor == b.tensor && a.slot == b.slot && a.slot_per == b.slot_per &&
         a.offset == b.offset && a.rows == b.rows && a.cols == b.cols && a.ld == b.ld;
}

/// Every element of the result depends on its own row alone, so input and result may be one block.
bool works_in_place(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::bias:
    case ComputeKind::activation:
    case ComputeKind::activation_grad:
    case ComputeKind::softmax:
    case ComputeKind::softmax_grad:
    case ComputeKind::layer_norm:
    case ComputeKind::copy:
    case ComputeKind::scale:
    case ComputeKind::add:
    case ComputeKind::sgd:
    case ComputeKind::adam:
      return true;
    default:
      return false;
  }
}

/// Finds the first rule that the operands of one operation break.
class ShapeCheck {
 public:
  ShapeCheck(const Program& program, const Compute& op)
      : program_(program), op_(op), names_(signature_of(op)) {}

  std::string run() {
    operand_counts();
    if (problem_.empty()) dtypes();
    if (problem_.empty()) shapes();
    if (problem_.empty()) aliasing();
    return problem_;
  }

 private:
  void require(bool ok, auto&& message) {
    if (!ok && problem_.empty()) problem_ = message();
  }
  void shape(std::string_view name, const View& view, Index rows, Index cols) {
    require(view.rows == rows && view.cols == cols, [&] {
      return fmt::format("{} is {}x{} but must be {}x{}", name, view.rows, view.cols, rows, cols);
    });
  }
  void elements(std::string_view name, const View& view, Index count) {
    require(view.elements() == count, [&] {
      return fmt::format("{} has {} elements but must have {}", name, view.elements(), count);
    });
  }
  void shape_in(std::size_t i, Index rows, Index cols) {
    shape(names_.in[i], op_.in[i], rows, cols);
  }
  void shape_out(std::size_t i, Index rows, Index cols) {
    shape(names_.out[i], op_.out[i], rows, cols);
  }
  void all_like(const View& model) {
    for (std::size_t i = 0; i < op_.in.size(); ++i) shape_in(i, model.rows, model.cols);
    for (std::size_t i = 0; i < op_.out.size(); ++i) shape_out(i, model.rows, model.cols);
  }

  void operand_counts() {
    require(op_.in.size() == names_.in.size() && op_.out.size() == names_.out.size(), [&] {
      return fmt::format("it takes {} -> {} but has {} -> {} operands", fmt::join(names_.in, ", "),
                         fmt::join(names_.out, ", "), op_.in.size(), op_.out.size());
    });
  }

  DType dtype(const View& view) const {
    return program_.tensors[static_cast<std::size_t>(view.tensor)].dtype;
  }
  void dtypes() {
    for (std::size_t i = 0; i < op_.in.size(); ++i) check_dtype(names_.in[i], op_.in[i]);
    for (std::size_t i = 0; i < op_.out.size(); ++i) check_dtype(names_.out[i], op_.out[i]);
  }
  void check_dtype(std::string_view name, const View& view) {
    const bool integer = op_.kind == ComputeKind::copy ? dtype(op_.in[0]) == DType::i32
                                                       : name == "idx" || name == "counts";
    require(integer == (dtype(view) == DType::i32), [&] {
      return fmt::format("{} is stored as {} but must be {}", name, to_string(dtype(view)),
                         integer ? "i32" : "a floating type");
    });
  }

  void aliasing() {
    for (std::size_t o = 0; o < op_.out.size(); ++o) {
      for (std::size_t i = 0; i < op_.in.size(); ++i) {
        const bool in_place = works_in_place(op_.kind) && same_place(op_.in[i], op_.out[o]);
        apart(names_.out[o], op_.out[o], names_.in[i], op_.in[i], in_place);
      }
      for (std::size_t i = 0; i < o; ++i)
        apart(names_.out[o], op_.out[o], names_.out[i], op_.out[i], false);
    }
  }
  void apart(std::string_view name, const View& view, std::string_view other_name,
             const View& other, bool allowed) {
    require(allowed || !may_overlap(view, other), [&] {
      return fmt::format("the result {} overlaps {}; write it to another place", name, other_name);
    });
  }

  void shapes();
  void gemm();
  void grouped_gemm();
  void grouped_wgrad();
  void experts_divide(std::string_view name, const View& stacked);
  void counts_fit(const View& counts);
  void row_vector(std::size_t i);
  void selection(const View& idx, const View& all);
  void permuted(std::string_view name, const View& copies, const View& idx, Index width);
  void relayout(std::string_view name, const View& blocks, const View& rows);
  void stacked();
  void updated_in_place();

  const Program& program_;
  const Compute& op_;
  const Signature names_;
  std::string problem_;
};

void ShapeCheck::gemm() {
  const View &a = op_.in[0], &b = op_.in[1];
  const Index m = op_.trans_a ? a.cols : a.rows, k = op_.trans_a ? a.rows : a.cols;
  const Index k_of_b = op_.trans_b ? b.cols : b.rows, n = op_.trans_b ? b.rows : b.cols;
  require(k == k_of_b, [&] {
    return fmt::format("A{} is {}x{} and B{} is {}x{}: the inner sizes {} and {} must be equal",
                       op_.trans_a ? "^T" : "", m, k, op_.trans_b ? "^T" : "", k_of_b, n, k,
                       k_of_b);
  });
  shape_out(0, m, n);
}

void ShapeCheck::experts_divide(std::string_view name, const View& stacked) {
  require(op_.experts > 0 && stacked.rows % op_.experts == 0, [&] {
    return fmt::format("{} stacks {} rows for {} experts; they must be a multiple", name,
                       stacked.rows, op_.experts);
  });
}

void ShapeCheck::counts_fit(const View& counts) {
  require(op_.experts > 0 && counts.elements() > 0 && counts.elements() % op_.experts == 0, [&] {
    return fmt::format("counts has {} entries; segments must be a multiple of the {} experts",
                       counts.elements(), op_.experts);
  });
}

void ShapeCheck::grouped_gemm() {
  const View &a = op_.in[0], &b = op_.in[1];
  require(!op_.trans_a, [] { return std::string("it has no transposed A; clear trans_a"); });
  experts_divide("B", b);
  counts_fit(op_.in[2]);
  if (!problem_.empty()) return;
  const Index stacked = b.rows / op_.experts;
  shape_in(0, a.rows, op_.trans_b ? b.cols : stacked);
  shape_out(0, a.rows, op_.trans_b ? stacked : b.cols);
}

void ShapeCheck::grouped_wgrad() {
  const View &a = op_.in[0], &d = op_.in[1];
  counts_fit(op_.in[2]);
  shape_in(1, a.rows, d.cols);
  shape_out(0, op_.experts * a.cols, d.cols);
}

void ShapeCheck::row_vector(std::size_t i) { shape_in(i, 1, op_.in[0].cols); }

/// idx[T x k] selects among the columns of `all`[T x E].
void ShapeCheck::selection(const View& idx, const View& all) {
  shape("idx", idx, all.rows, idx.cols);
  require(idx.cols <= all.cols,
          [&] { return fmt::format("idx selects {} of only {} experts", idx.cols, all.cols); });
  require(op_.experts == 0 || op_.experts == all.cols,
          [&] { return fmt::format("P has {} columns for {} experts", all.cols, op_.experts); });
}

/// One row of `copies` for each selection.
void ShapeCheck::permuted(std::string_view name, const View& copies, const View& idx, Index width) {
  shape(name, copies, idx.elements(), width);
}

/// `blocks` holds the same elements as `rows`, whose columns are the widths of `counts` side by
/// side.
void ShapeCheck::relayout(std::string_view name, const View& blocks, const View& rows) {
  const Index width = std::accumulate(op_.counts.begin(), op_.counts.end(), Index{0});
  require(width == rows.cols, [&] {
    return fmt::format("the widths sum to {} but Y has {} columns", width, rows.cols);
  });
  elements(name, blocks, rows.elements());
  require(blocks.contiguous(), [&] { return fmt::format("{} must be contiguous", name); });
}

void ShapeCheck::stacked() {
  const View &s = op_.in[0], &y = op_.out[0];
  require(y.rows > 0 ? s.rows % y.rows == 0 && s.rows > 0 : s.rows == 0, [&] {
    return fmt::format("S stacks {} rows; they must be a multiple of the {} rows of Y", s.rows,
                       y.rows);
  });
  shape_out(0, y.rows, s.cols);
}

void ShapeCheck::updated_in_place() {
  all_like(op_.in[0]);
  const auto same = [this](std::size_t i, std::size_t o) {
    require(same_place(op_.in[i], op_.out[o]), [&] {
      return fmt::format("{} is updated in place: it must be the same view on both sides",
                         names_.out[o]);
    });
  };
  same(0, 0);
  if (op_.kind != ComputeKind::adam) return;
  same(2, 1);
  same(3, 2);
  require(op_.step >= 1,
          [this] { return fmt::format("step {} is none; Adam counts from 1", op_.step); });
}

void ShapeCheck::shapes() {
  const auto& in = op_.in;
  const auto& out = op_.out;
  switch (op_.kind) {
    case ComputeKind::gemm:
      return gemm();
    case ComputeKind::grouped_gemm:
      return grouped_gemm();
    case ComputeKind::grouped_wgrad:
      return grouped_wgrad();
    case ComputeKind::bias:
      row_vector(1);
      return shape_out(0, in[0].rows, in[0].cols);
    case ComputeKind::layer_norm:
      row_vector(1);
      row_vector(2);
      return shape_out(0, in[0].rows, in[0].cols);
    case ComputeKind::activation:
    case ComputeKind::activation_grad:
    case ComputeKind::softmax:
    case ComputeKind::softmax_grad:
    case ComputeKind::copy:
    case ComputeKind::scale:
    case ComputeKind::add:
      return all_like(in[0]);
    case ComputeKind::top_k:
      selection(out[0], in[0]);
      return shape_out(1, out[0].rows, out[0].cols);
    case ComputeKind::top_k_grad:
      selection(in[1], in[2]);
      shape_in(0, in[1].rows, in[1].cols);
      return shape_out(0, in[2].rows, in[2].cols);
    case ComputeKind::count_tokens:
      return elements("counts", out[0], op_.experts > 0 ? op_.experts : out[0].elements());
    case ComputeKind::permute:
      shape_in(1, in[0].rows, in[1].cols);
      return permuted("S", out[0], in[1], in[0].cols);
    case ComputeKind::permute_grad:
      shape_out(0, in[1].rows, in[0].cols);
      return permuted("dS", in[0], in[1], in[0].cols);
    case ComputeKind::unpermute:
      shape_in(2, in[1].rows, in[1].cols);
      shape_out(0, in[1].rows, in[0].cols);
      return permuted("S", in[0], in[1], in[0].cols);
    case ComputeKind::unpermute_grad:
      shape_in(0, in[2].rows, in[1].cols);
      shape_in(3, in[2].rows, in[2].cols);
      permuted("S", in[1], in[2], in[1].cols);
      shape_out(0, in[1].rows, in[1].cols);
      return shape_out(1, in[3].rows, in[3].cols);
    case ComputeKind::relayout:
      return relayout("G", in[0], out[0]);
    case ComputeKind::split_layout:
      return relayout("G", out[0], in[0]);
    case ComputeKind::reduce:
      return stacked();
    case ComputeKind::column_sum:
      return shape_out(0, 1, in[0].cols);
    case ComputeKind::sgd:
    case ComputeKind::adam:
      return updated_in_place();
  }
}

}  // namespace

std::string compute_problem(const Program& program, const Compute& op) {
  return ShapeCheck(program, op).run();
}

}  // namespace weft
