#include "kernels/reference_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft::reference {

bool Block::exact() const {
  return std::all_of(sigma.begin(), sigma.end(), [](double s) { return s == 0.0; });
}

// ---- Memo --------------------------------------------------------------------------------------

Memo::Memo(Index rows, Index cols)
    : tile_cols_((cols + kSide - 1) / kSide),
      tiles_(static_cast<std::size_t>((rows + kSide - 1) / kSide * tile_cols_)) {}

void Memo::extend(std::optional<Area>& box, Index row, Index col, Index cols) const {
  if (!box) {
    box = Area{row, col, 1, cols};
    return;
  }
  const Index left = std::min(box->col, col), right = std::max(box->col + box->cols, col + cols);
  *box = {box->row, left, row + 1 - box->row, right - left};
}

template <class Fn>
void Memo::for_each_run(const Area& area, Fn&& fn) {
  const Index end = area.col + area.cols;
  for (Index row = area.row; row < area.row + area.rows; ++row) {
    for (Index col = area.col; col < end;) {
      const Index count = std::min(kSide - col % kSide, end - col);
      fn(row, col, count);
      col += count;
    }
  }
}

std::optional<Area> Memo::missing(const Area& area) const {
  std::optional<Area> box;
  for_each_run(area, [&](Index row, Index col, Index count) {
    const Index first = col % kSide;
    const Tile* tile = tiles_[index(row, col)].get();
    const unsigned wanted = ((1u << count) - 1u) << first;
    const unsigned known = tile ? tile->known[static_cast<std::size_t>(row % kSide)] : 0u;
    if (const unsigned unknown = wanted & ~known) {
      const Index low = std::countr_zero(unknown), high = std::bit_width(unknown);
      extend(box, row, col - first + low, high - low);
    }
  });
  return box;
}

void Memo::read(const Area& area, Block& block, Index row, Index col, bool transposed) const {
  const Index step = transposed ? block.cols : 1;  // between neighbours of a row
  for_each_run(area, [&](Index r, Index c, Index count) {
    const Tile& tile = *tiles_[index(r, c)];
    const auto from = static_cast<std::size_t>(r % kSide * kSide + c % kSide);
    const Index down = row + r - area.row, right = col + c - area.col;
    const std::size_t to = transposed ? block.at(right, down) : block.at(down, right);
    for (Index i = 0; i < count; ++i) {
      const std::size_t at = to + static_cast<std::size_t>(i * step);
      block.value[at] = tile.value[from + static_cast<std::size_t>(i)];
      block.bound[at] = tile.bound[from + static_cast<std::size_t>(i)];
      block.sigma[at] = tile.sigma[from + static_cast<std::size_t>(i)];
    }
  });
}

void Memo::write(const Area& area, const Block& block) {
  constexpr double kUp = 1.0 + 0x1p-22;  // conversion to float must not lower a bound
  for_each_run(area, [&](Index row, Index col, Index count) {
    auto& tile = tiles_[index(row, col)];
    if (!tile) tile = std::make_unique<Tile>();
    const Index first = col % kSide;
    const auto to = static_cast<std::size_t>(row % kSide * kSide + first);
    const std::size_t from = block.at(row - area.row, col - area.col);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      tile->value[to + i] = block.value[from + i];
      tile->bound[to + i] = static_cast<float>(block.bound[from + i] * kUp);
      tile->sigma[to + i] = static_cast<float>(block.sigma[from + i] * kUp);
    }
    tile->known[static_cast<std::size_t>(row % kSide)] |=
        static_cast<std::uint16_t>(((1u << count) - 1u) << first);
  });
}

// ---- Geometry ----------------------------------------------------------------------------------

namespace {

Index stride_of(const View& view) { return std::max(view.ld, view.cols); }

/// How an area of one view lies to another view of the same memory.
struct Relation {
  enum Kind { inside, outside, cut_rows, cut_cols } kind;
  Index row = 0, col = 0;  // inside: where in the other view
  Index cut = 0;           // else: rows or columns of the first part
};

/// Both are grids of one stride (or the area is a single row): compare as rectangles.
Relation compare_grids(const View& other, Index first, const Area& area) {
  const Index stride = stride_of(other), distance = first - other.offset;
  const Index row = (distance >= 0 ? distance : distance - stride + 1) / stride;
  const Index col = distance - row * stride;
  if (col + area.cols > stride) return {Relation::cut_cols, 0, 0, stride - col};
  if (row + area.rows <= 0 || row >= other.rows || col >= other.cols) return {Relation::outside};
  if (row < 0) return {Relation::cut_rows, 0, 0, -row};
  if (row + area.rows > other.rows) return {Relation::cut_rows, 0, 0, other.rows - row};
  if (col + area.cols > other.cols) return {Relation::cut_cols, 0, 0, other.cols - col};
  return {Relation::inside, row, col};
}

Relation compare(const View& view, const Area& area, const View& other) {
  const Index first = view.offset + area.row * view.ld + area.col;
  const Index last = first + (area.rows - 1) * view.ld + area.cols - 1;
  const Index other_last = other.offset + (other.rows - 1) * stride_of(other) + other.cols - 1;
  if (other.elements() == 0 || last < other.offset || first > other_last) {
    return {Relation::outside};
  }
  if (area.rows > 1 && view.ld != stride_of(other)) {
    return {Relation::cut_rows, 0, 0, area.rows / 2};
  }
  return compare_grids(other, first, area);
}

/// Cuts an area until each part has one writer.
class Splitter {
 public:
  Splitter(const Versions& versions, const std::vector<NodeId>& writers, const View& view)
      : versions_(versions), writers_(writers), view_(view) {}

  /// writers_[0, end) are considered; (row, col) is where the part lies in the whole area.
  void split(const Area& part, std::size_t end, Index row, Index col) {
    for (std::size_t i = end; i-- > 0;) {
      const Relation relation = compare(view_, part, versions_.node(writers_[i]).view);
      if (relation.kind == Relation::outside) continue;
      if (relation.kind == Relation::inside) {
        pieces.push_back(
            {writers_[i], {relation.row, relation.col, part.rows, part.cols}, row, col});
      } else {
        cut(part, relation, i + 1, row, col);
      }
      return;
    }
    fail_usage(
        fmt::format("reference: tensor {} is read outside of its {} elements; correct the view",
                    view_.tensor, versions_.node(writers_[0]).view.elements()));
  }

  std::vector<Piece> pieces;

 private:
  void cut(const Area& part, const Relation& relation, std::size_t end, Index row, Index col) {
    Area first = part, second = part;
    const bool rows = relation.kind == Relation::cut_rows;
    if (rows) {
      first.rows = relation.cut;
      second.row += relation.cut;
      second.rows -= relation.cut;
    } else {
      first.cols = relation.cut;
      second.col += relation.cut;
      second.cols -= relation.cut;
    }
    split(first, end, row, col);
    split(second, end, row + second.row - part.row, col + second.col - part.col);
  }

  const Versions& versions_;
  const std::vector<NodeId>& writers_;
  const View& view_;
};

}  // namespace

// ---- Versions ----------------------------------------------------------------------------------

std::vector<View> outputs_of(const FlatStep& step) {
  if (const auto* compute = std::get_if<Compute>(&step.op)) return compute->out;
  if (const auto* collective = std::get_if<Collective>(&step.op)) return {collective->out};
  fail_usage(
      fmt::format("reference: step '{}' sends or receives, but a reference program has one "
                  "rank; leave it out or copy",
                  step.label));
}

Versions::Versions(const Program& program, const Steps& steps) {
  // A fill is cheap to make again; kept, a weight of a large model would take 16 bytes an element.
  constexpr Index kLargestKeptFill = 1 << 20;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    slots_.emplace_back(static_cast<std::size_t>(tensor.slots));
    for (int slot = 0; slot < tensor.slots; ++slot) {
      add(-1, 0, whole(tensor, static_cast<TensorId>(t), slot), tensor.dtype);
      nodes_.back().remembered = tensor.elements() <= kLargestKeptFill;
    }
  }
  for (std::size_t s = 0; s < steps.size(); ++s) {
    first_of_step_.push_back(count());
    int output = 0;
    for (const View& view : outputs_of(steps[s])) {
      add(static_cast<int>(s), output++, view,
          program.tensors.at(static_cast<std::size_t>(view.tensor)).dtype);
    }
  }
}

void Versions::add(int step, int output, const View& view, DType dtype) {
  auto& slots = slots_[static_cast<std::size_t>(view.tensor)];
  slots[static_cast<std::size_t>(view.slot) % slots.size()].push_back(count());
  nodes_.push_back({.step = step, .output = output, .view = view, .dtype = dtype, .memo = nullptr});
}

const std::vector<NodeId>& Versions::slot_of(const View& view) const {
  const auto& slots = slots_.at(static_cast<std::size_t>(view.tensor));
  return slots[static_cast<std::size_t>(view.slot) % slots.size()];
}

NodeId Versions::node_of(int step, int output) const {
  return first_of_step_[static_cast<std::size_t>(step)] + output;
}

namespace {

/// How many of the nodes, oldest first, belong to steps before `before`.
std::size_t older_than(const Versions& versions, const std::vector<NodeId>& nodes, int before) {
  const auto end = std::partition_point(nodes.begin(), nodes.end(),
                                        [&](NodeId id) { return versions.node(id).step < before; });
  return static_cast<std::size_t>(end - nodes.begin());
}

}  // namespace

std::vector<Piece> Versions::pieces(const View& view, int before, const Area& area) const {
  if (area.elements() <= 0) return {};
  const std::vector<NodeId>& nodes = slot_of(view);
  Splitter splitter(*this, nodes, view);
  splitter.split(area, older_than(*this, nodes, before), 0, 0);
  return std::move(splitter.pieces);
}

std::vector<NodeId> Versions::writers(const View& view, int before) const {
  const std::vector<NodeId>& nodes = slot_of(view);
  std::vector<NodeId> found;
  if (view.elements() == 0) return found;
  for (std::size_t i = older_than(*this, nodes, before); i-- > 0;) {
    const Relation relation = compare(view, whole_of(view), node(nodes[i]).view);
    if (relation.kind != Relation::outside) found.push_back(nodes[i]);
    if (relation.kind == Relation::inside) break;
  }
  return found;
}

void Versions::forget() {
  for (Node& node : nodes_) node.memo.reset();
}

}  // namespace weft::reference
