// Evaluates areas of operands on demand. Rules (reference_rules.hpp) say how an area of an output
// follows from areas of the inputs; this class finds who wrote those, asks for what is not known
// yet, and remembers it. Private to kernels/reference*.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "kernels/reference_memory.hpp"

namespace weft::reference {

/// The order of permute for the indices of one step: rows sorted by expert, then token, then
/// choice.
struct Routing {
  Index tokens = 0, choices = 0;
  std::vector<Index> row_of;        // by token*choices + choice: the row of S
  std::vector<Index> selection_at;  // by row of S: token*choices + choice

  Index row(Index token, Index choice) const {
    return row_of[static_cast<std::size_t>(token * choices + choice)];
  }
  Index selection(Index row) const { return selection_at[static_cast<std::size_t>(row)]; }
};

class Evaluator {
 public:
  /// Keeps a copy of what it needs of `program`, so that may die.
  Evaluator(const Program& program, std::uint64_t seed);

  const Program& program() const { return program_; }
  const Steps& steps() const { return steps_; }
  const Versions& versions() const { return versions_; }
  /// The step after the last: "before" it is the state after an iteration.
  int end() const { return static_cast<int>(steps_.size()); }
  DType dtype(const View& view) const { return tensor(view).dtype; }
  const Tensor& tensor(const View& view) const {
    return program_.tensors[static_cast<std::size_t>(view.tensor)];
  }

  /// Makes an area of an operand of step `before` known.
  void demand(const View& view, int before, const Area& area);
  /// The same, and copies it; `transposed` swaps rows and columns of the copy.
  Block fetch(const View& view, int before, const Area& area, bool transposed = false);
  /// A whole i32 operand.
  std::vector<Index> integers(const View& view, int before);

  /// A selection made elsewhere, by slot, row, column of an i32 tensor. Forgets all results.
  void set_hint(TensorId tensor, std::vector<std::int32_t> values);
  /// The hinted value of an element of an output of `step`, if that output is what the tensor holds
  /// in the end: hints speak of nothing earlier.
  const std::int32_t* hint(int step, const View& output, Index row, Index col) const;
  bool hinted(int step, const View& output) const;

  /// Sorted order of the indices that a step of the permute family reads.
  const Routing& routing(int step, const View& indices, int experts);
  /// First row of every segment of a step of the grouped family, and the end.
  const std::vector<Index>& segments(int step, const View& counts);
  /// Checks hinted selections of the tokens [first, first + count) that a step reads in `indices`:
  /// throws Error(failed) if a chosen one is smaller than one left out, beyond both bounds.
  void confirm(const View& indices, int before, Index first, Index count);

 private:
  void ensure(NodeId id, const Area& area);
  Block compute(NodeId id, const Area& area);
  Block settle(NodeId id, const Area& area, Block raw);
  void copy_piece(const Piece& piece, bool transposed, Block& block);
  Estimate generate(const Node& node, Index row, Index col) const;
  void confirm_row(int step, Index row);

  Program program_;
  std::uint64_t seed_;
  Steps steps_;
  Versions versions_;
  std::map<TensorId, std::vector<std::int32_t>> hints_;
  std::unordered_map<int, Routing> routings_;
  std::unordered_map<int, std::vector<Index>> segments_;
  std::unordered_map<int, std::unordered_set<Index>> confirmed_;  // rows, by step
};

}  // namespace weft::reference
