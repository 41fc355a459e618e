#include "kernels/reference_evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/generator.hpp"
#include "kernels/reference_rules.hpp"
#include "patterns/error.hpp"

namespace weft::reference {

namespace {

Steps all_steps(const Program& program) {
  Steps steps = flatten(program, program.prologue);
  Steps iteration = flatten(program, program.steps);
  std::move(iteration.begin(), iteration.end(), std::back_inserter(steps));
  return steps;
}

/// Areas are worked on in rows of about so many elements, to bound the memory of an evaluation.
constexpr Index kLargestArea = 1 << 18;

}  // namespace

Evaluator::Evaluator(const Program& program, std::uint64_t seed)
    : program_(program), seed_(seed), steps_(all_steps(program)), versions_(program, steps_) {}

// ---- Demand and fetch --------------------------------------------------------------------------

void Evaluator::demand(const View& view, int before, const Area& area) {
  for (const Piece& piece : versions_.pieces(view, before, area)) ensure(piece.node, piece.source);
}

Block Evaluator::fetch(const View& view, int before, const Area& area, bool transposed) {
  const std::vector<Piece> pieces = versions_.pieces(view, before, area);
  // All evaluation first: recursion must not hold blocks.
  for (const Piece& piece : pieces) ensure(piece.node, piece.source);
  Block block = transposed ? Block(area.cols, area.rows) : Block(area.rows, area.cols);
  for (const Piece& piece : pieces) copy_piece(piece, transposed, block);
  return block;
}

void Evaluator::copy_piece(const Piece& piece, bool transposed, Block& block) {
  const Node& node = versions_.node(piece.node);
  if (node.remembered) {
    node.memo->read(piece.source, block, piece.row, piece.col, transposed);
    return;
  }
  for (Index r = 0; r < piece.source.rows; ++r) {
    for (Index c = 0; c < piece.source.cols; ++c) {
      const Estimate estimate = generate(node, piece.source.row + r, piece.source.col + c);
      const Index row = piece.row + r, col = piece.col + c;
      transposed ? block.set(col, row, estimate) : block.set(row, col, estimate);
    }
  }
}

std::vector<Index> Evaluator::integers(const View& view, int before) {
  const Block block = fetch(view, before, whole_of(view));
  std::vector<Index> values(block.size());
  std::transform(block.value.begin(), block.value.end(), values.begin(),
                 [](double value) { return static_cast<Index>(std::llround(value)); });
  return values;
}

// ---- Nodes -------------------------------------------------------------------------------------

Estimate Evaluator::generate(const Node& node, Index row, Index col) const {
  const Tensor& t = tensor(node.view);
  if (t.fill == Fill::none) {
    fail_usage(
        fmt::format("reference: element ({}, {}) of tensor '{}' is read before a step wrote it; "
                    "give the tensor a fill or order the steps",
                    row, col, t.name));
  }
  if (t.fill == Fill::values) {
    const Index element = (node.view.slot * t.rows + row) * t.cols + col;
    return {static_cast<double>(t.values.at(static_cast<std::size_t>(element))), 0, 0};
  }
  std::byte stored[sizeof(float)];
  store_element(stored, t.dtype, 0,
                generated_value(t, seed_, t.slot_offset + node.view.slot, t.row_offset + row,
                                t.col_offset + col));
  return {load_element(stored, t.dtype, 0), 0, 0};
}

void Evaluator::ensure(NodeId id, const Area& area) {
  Node& node = versions_.node(id);
  if (!node.remembered) return;
  if (!node.memo) node.memo = std::make_unique<Memo>(node.view.rows, node.view.cols);
  const std::optional<Area> missing = node.memo->missing(area);
  if (!missing) return;
  const Index step = std::max<Index>(1, kLargestArea / missing->cols);
  for (Index done = 0; done < missing->rows; done += step) {
    const Area part{missing->row + done, missing->col, std::min(step, missing->rows - done),
                    missing->cols};
    node.memo->write(part, compute(id, part));
  }
}

Block Evaluator::compute(NodeId id, const Area& area) {
  const Node& node = versions_.node(id);
  if (node.step < 0) {
    Block block(area.rows, area.cols);
    for (Index r = 0; r < area.rows; ++r) {
      for (Index c = 0; c < area.cols; ++c) {
        block.set(r, c, generate(node, area.row + r, area.col + c));
      }
    }
    return block;
  }
  const FlatStep& step = steps_[static_cast<std::size_t>(node.step)];
  if (const auto* collective = std::get_if<Collective>(&step.op)) {
    return copied(*this, node.step, collective->in, collective->out, area);
  }
  const auto& op = std::get<Compute>(step.op);
  return settle(id, area, rule_of(op.kind)({*this, op, node.step, node.output, area}));
}

/// What comes after the arithmetic: the sum with what was there before, and rounding to storage.
Block Evaluator::settle(NodeId id, const Area& area, Block raw) {
  const Node& node = versions_.node(id);
  const auto& op = std::get<Compute>(steps_[static_cast<std::size_t>(node.step)].op);
  if (node.dtype == DType::i32) return raw;
  Block before;
  if (op.accumulate) before = fetch(node.view, node.step, area);
  const bool stored_so = only_moves(op) && dtype(op.in[0]) == node.dtype && !op.accumulate;
  const bool rounds = node.dtype != DType::f32 && !stored_so;
  if (!op.accumulate && !rounds) return raw;
  for (Index r = 0; r < area.rows; ++r) {
    for (Index c = 0; c < area.cols; ++c) {
      const Estimate result = raw.get(r, c);
      double value = result.value;
      Error error;
      error.from(result, 1.0);
      if (op.accumulate) {
        const Estimate old = before.get(r, c);
        value += old.value;
        error.from(old, 1.0).rounding(half_ulp(value, DType::f32));
      }
      if (rounds) {
        error.rounding(half_ulp(std::fabs(value) + error.around(value).bound, node.dtype));
      }
      raw.set(r, c, error.around(value));
    }
  }
  return raw;
}

// ---- Hints -------------------------------------------------------------------------------------

void Evaluator::set_hint(TensorId id, std::vector<std::int32_t> values) {
  hints_[id] = std::move(values);
  versions_.forget();
  routings_.clear();
  segments_.clear();
  confirmed_.clear();
}

bool Evaluator::hinted(int step, const View& output) const {
  return hints_.contains(output.tensor) && hint(step, output, 0, 0) != nullptr;
}

const std::int32_t* Evaluator::hint(int step, const View& output, Index row, Index col) const {
  const auto found = hints_.find(output.tensor);
  if (found == hints_.end()) return nullptr;
  const Piece last = versions_.pieces(output, end(), {row, col, 1, 1}).front();
  if (versions_.node(last.node).step != step) return nullptr;
  const Index element = output.offset + row * output.ld + col;
  const Index size = tensor(output).elements();
  const auto& values = found->second;
  const Index slot = static_cast<Index>(values.size()) > size ? output.slot : 0;
  const Index at = slot * size + element;
  const bool given = at < static_cast<Index>(values.size()) && (slot > 0 || output.slot == 0);
  return given ? &values[static_cast<std::size_t>(at)] : nullptr;
}

// ---- Routing -----------------------------------------------------------------------------------

namespace {

/// A counting sort by expert keeps the order of tokens and choices within an expert.
Routing sort_by_expert(const std::vector<Index>& experts, Index tokens, Index choices,
                       Index count) {
  std::vector<Index> next(static_cast<std::size_t>(count) + 1, 0);
  for (Index e : experts) ++next[static_cast<std::size_t>(e) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  Routing routing{tokens, choices, std::vector<Index>(experts.size()),
                  std::vector<Index>(experts.size())};
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const Index row = next[static_cast<std::size_t>(experts[i])]++;
    routing.row_of[i] = row;
    routing.selection_at[static_cast<std::size_t>(row)] = static_cast<Index>(i);
  }
  return routing;
}

}  // namespace

const Routing& Evaluator::routing(int step, const View& indices, int experts) {
  if (const auto found = routings_.find(step); found != routings_.end()) return found->second;
  const std::vector<Index> chosen = integers(indices, step);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= 0 && (experts == 0 || chosen[i] < experts)) continue;
    fail(ExitCode::failed, fmt::format("reference: '{}' sends token {} to expert {}, of {} experts",
                                       tensor(indices).name, static_cast<Index>(i) / indices.cols,
                                       chosen[i], experts));
  }
  const Index largest = chosen.empty() ? 0 : *std::max_element(chosen.begin(), chosen.end());
  return routings_[step] = sort_by_expert(chosen, indices.rows, indices.cols, largest + 1);
}

const std::vector<Index>& Evaluator::segments(int step, const View& counts) {
  if (const auto found = segments_.find(step); found != segments_.end()) return found->second;
  const std::vector<Index> sizes = integers(counts, step);
  std::vector<Index> starts(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), starts.begin() + 1);
  return segments_[step] = std::move(starts);
}

// ---- Confirmation ------------------------------------------------------------------------------

void Evaluator::confirm(const View& indices, int before, Index first, Index count) {
  const Area rows{first, 0, count, indices.cols};
  for (const Piece& piece : versions_.pieces(indices, before, rows)) {
    const Node& node = versions_.node(piece.node);
    if (node.step < 0) continue;
    const FlatStep& step = steps_[static_cast<std::size_t>(node.step)];
    const auto* op = std::get_if<Compute>(&step.op);
    const auto* collective = std::get_if<Collective>(&step.op);
    if (op && op->kind == ComputeKind::top_k) {
      if (!hinted(node.step, node.view)) continue;
      demand(op->in[0], node.step, {piece.source.row, 0, piece.source.rows, op->in[0].cols});
      for (Index r = 0; r < piece.source.rows; ++r) confirm_row(node.step, piece.source.row + r);
    } else if (collective || (op && op->kind == ComputeKind::copy)) {
      const View& from = collective ? collective->in : op->in[0];
      if (from.cols == node.view.cols) {
        confirm(from, node.step, piece.source.row, piece.source.rows);
      }
    }
  }
}

namespace {

std::vector<char> marked(const Block& chosen, Index experts, const std::string& name, Index row) {
  std::vector<char> mark(static_cast<std::size_t>(experts), 0);
  for (double choice : chosen.value) {
    const auto e = static_cast<Index>(choice);
    if (e < 0 || e >= experts || mark[static_cast<std::size_t>(e)]) {
      fail(ExitCode::failed, fmt::format("'{}' row {}: choice {} is {}", name, row, e,
                                         e < 0 || e >= experts ? "no expert" : "made twice"));
    }
    mark[static_cast<std::size_t>(e)] = 1;
  }
  return mark;
}

void check_order(const Block& p, Index chosen, Index left_out, const std::string& name, Index row) {
  const Estimate in = p.get(0, chosen), out = p.get(0, left_out);
  if (in.value + in.bound >= out.value - out.bound) return;
  fail(ExitCode::failed,
       fmt::format(
           "'{}' row {}: expert {} (probability {:.9g} +- {:.2g}) was chosen before expert {} "
           "({:.9g} +- {:.2g})",
           name, row, chosen, in.value, in.bound, left_out, out.value, out.bound));
}

}  // namespace

void Evaluator::confirm_row(int step, Index row) {
  if (confirmed_[step].contains(row)) return;
  const auto& op = std::get<Compute>(steps_[static_cast<std::size_t>(step)].op);
  const Block p = fetch(op.in[0], step, row_of(op.in[0], row));
  const Block chosen = fetch(op.out[0], step + 1, row_of(op.out[0], row));
  const std::string& name = tensor(op.out[0]).name;
  const std::vector<char> mark = marked(chosen, p.cols, name, row);
  Index lowest = -1,
        highest = -1;  // the weakest chosen at its best, the best left out at its worst
  for (Index e = 0; e < p.cols; ++e) {
    const Estimate at = p.get(0, e);
    if (mark[static_cast<std::size_t>(e)]) {
      if (lowest < 0 || at.value + at.bound < p.get(0, lowest).value + p.get(0, lowest).bound)
        lowest = e;
    } else if (highest < 0 ||
               at.value - at.bound > p.get(0, highest).value - p.get(0, highest).bound) {
      highest = e;
    }
  }
  if (lowest >= 0 && highest >= 0) check_order(p, lowest, highest, name, row);
  confirmed_[step].insert(row);
}

}  // namespace weft::reference
