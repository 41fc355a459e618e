// Plays the programs of all ranks together in double precision, to see that a pattern computes what
// its unsharded reference computes. Plain loops, no rounding; zero buffering; either stream first.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "patterns/pattern.hpp"

namespace weft::play {

enum class First { compute, comm };

class World {
 public:
  explicit World(std::vector<Program> programs);

  /// Prologues, then `iterations` of the steps. Throws Error(failed) if nothing can go on.
  void run(First first = First::compute, int iterations = 1);

  const Program& program(int rank) const { return ranks_[static_cast<std::size_t>(rank)].program; }
  /// Element of a rank's tensor by local slot, row and column; writable before run().
  double& at(int rank, const std::string& tensor, int slot, Index row, Index col);
  bool has(int rank, const std::string& tensor) const;

 private:
  struct RankState {
    Program program;
    std::vector<std::vector<double>> memory;  // by tensor: [slots x rows x cols]
    std::vector<FlatStep> flat;
    std::vector<char> done;
    std::vector<std::vector<char>> members_done;  // of a PostedTogether
    std::size_t next[2] = {0, 0};                 // position in `order`
    std::vector<int> order[2];                    // flat steps of each stream
  };

  void play(std::vector<Step> Program::*list, First first);
  bool advance(int rank, StreamRole stream);
  bool advance_comm(int rank, int step);
  bool advance_messages(int rank, int step, const std::vector<SendRecv>& members);
  bool match(int rank, const SendRecv& op);
  void collective(const std::vector<std::pair<int, const Collective*>>& members);
  int head(int rank, StreamRole stream) const;
  void finish(int rank, StreamRole stream);
  double& cell(int rank, const View& view, Index row, Index col);
  double& flat_cell(int rank, const View& view, Index element);
  void compute(int rank, const Compute& op);

  std::vector<RankState> ranks_;
};

/// The value that a fill gives a global element; the same for shards and the reference.
double fill_value(const Tensor& tensor, int global_slot, Index row, Index col);

/// Programs of all ranks of a layout.
std::vector<Program> programs_of(const Pattern& pattern, const ModelShape& model,
                                 const Layout& layout, const PatternOptions& options);

/// validate(), validate_world(), plays the programs and the reference, and compares every checked
/// tensor: an empty text, or the first difference. `iterations`: the checked results must be the
/// same after each.
std::string difference(const Pattern& pattern, const ModelShape& model, const LayoutSpec& spec,
                       int world, const PatternOptions& options, First first = First::compute,
                       int iterations = 1);

/// A small model: h 8, f 12, 4 layers, 8 experts, top 2, s 8.
ModelShape small_model(Activation act = Activation::gelu);

}  // namespace weft::play
