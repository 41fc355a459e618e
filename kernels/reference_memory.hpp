// Which step wrote an element last, and what is known of it already. Private to
// kernels/reference*.cpp.
//
// Every output of every step is a node, and so is the fill of every slot of every tensor. The value
// of an element before step s is that of the newest node before s whose view covers it.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/reference_bounds.hpp"
#include "patterns/program.hpp"

namespace weft::reference {

using Steps = std::vector<FlatStep>;
using NodeId = int;

/// A rectangle of a view, in its rows and columns.
struct Area {
  Index row = 0, col = 0, rows = 0, cols = 0;
  Index elements() const { return rows * cols; }
};
inline Area whole_of(const View& view) { return {0, 0, view.rows, view.cols}; }
inline Area row_of(const View& view, Index row) { return {row, 0, 1, view.cols}; }

/// A dense copy of an area.
struct Block {
  Block() = default;
  Block(Index rows_, Index cols_) : rows(rows_), cols(cols_) {
    for (auto* part : {&value, &bound, &sigma}) part->assign(size(), 0.0);
  }

  Index rows = 0, cols = 0;
  std::vector<double> value, bound, sigma;  // rows*cols each

  std::size_t size() const { return static_cast<std::size_t>(rows * cols); }
  std::size_t at(Index row, Index col) const { return static_cast<std::size_t>(row * cols + col); }
  Estimate get(Index row, Index col) const {
    const std::size_t i = at(row, col);
    return {value[i], bound[i], sigma[i]};
  }
  void set(Index row, Index col, const Estimate& estimate) {
    const std::size_t i = at(row, col);
    value[i] = estimate.value;
    bound[i] = estimate.bound;
    sigma[i] = estimate.sigma;
  }
  /// No element has an error.
  bool exact() const;
};

/// The known elements of one node, in tiles that are allocated when first written.
class Memo {
 public:
  Memo(Index rows, Index cols);

  /// The smallest area that holds all unknown elements of `area`; nothing when all are known.
  std::optional<Area> missing(const Area& area) const;
  /// Copies known elements to (row, col) of a block, or to (col, row) if `transposed`.
  void read(const Area& area, Block& block, Index row, Index col, bool transposed) const;
  void write(const Area& area, const Block& block);

 private:
  static constexpr Index kSide = 16;
  struct Tile {
    std::array<double, kSide * kSide> value;
    std::array<float, kSide * kSide> bound, sigma;  // rounded up
    std::array<std::uint16_t, kSide> known{};       // a bit for each column
  };
  std::size_t index(Index row, Index col) const {
    return static_cast<std::size_t>(row / kSide * tile_cols_ + col / kSide);
  }
  /// Calls fn(row, col, count) for the runs of an area that lie in one row of one tile.
  template <class Fn>
  static void for_each_run(const Area& area, Fn&& fn);
  void extend(std::optional<Area>& box, Index row, Index col, Index cols) const;

  Index tile_cols_;
  std::vector<std::unique_ptr<Tile>> tiles_;
};

struct Node {
  int step = -1;  // -1: the fill
  int output = 0;
  View view;
  DType dtype = DType::f32;
  bool remembered = true;  // false: a fill too large to keep, generated at every use
  std::unique_ptr<Memo> memo;
};

/// A part of an area that one node wrote: `source` in the node's view; it lies at (row, col) of the
/// area.
struct Piece {
  NodeId node;
  Area source;
  Index row, col;
};

class Versions {
 public:
  Versions(const Program& program, const Steps& steps);

  /// Newest writers before step `before` of an area of a view: pieces that make up the area.
  std::vector<Piece> pieces(const View& view, int before, const Area& area) const;
  /// Nodes before `before` that may hold a part of the view, newest first; the last covers it.
  std::vector<NodeId> writers(const View& view, int before) const;
  /// The node of an output of a step.
  NodeId node_of(int step, int output) const;

  Node& node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  NodeId count() const { return static_cast<NodeId>(nodes_.size()); }
  /// Forgets all values.
  void forget();

 private:
  void add(int step, int output, const View& view, DType dtype);
  const std::vector<NodeId>& slot_of(const View& view) const;

  std::vector<std::vector<std::vector<NodeId>>> slots_;  // by tensor, slot: oldest first
  std::vector<Node> nodes_;
  std::vector<NodeId> first_of_step_;
};

/// Operands that a step writes, in the order of Compute::out; a collective has one.
std::vector<View> outputs_of(const FlatStep& step);

}  // namespace weft::reference
