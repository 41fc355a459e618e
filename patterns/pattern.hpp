// What a pattern is: a pure function from (model, layout, options, rank) to a Program. The explicit
// list is in registry.cpp; each pattern has a file of its own.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "patterns/layout.hpp"
#include "patterns/model.hpp"
#include "patterns/program.hpp"

namespace weft {

enum class PipelineSchedule : std::uint8_t { gpipe, one_f_one_b };
enum class Optimizer : std::uint8_t { none, sgd, adam };

struct PatternOptions {
  Index seq = 0;          // s; 0: the model's (bench puts in the model's or the user's value)
  Index micro_batch = 1;  // b, sequences in a micro-batch; T = s*b tokens
  int micro_batches = 1;  // m
  int layers = 0;         // 0: the model's
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Direction direction = Direction::forward;
  bool sequence_parallel = false;
  bool keep_gathered =
      false;  // column half: keep the gathered X for dA in place of gathering again
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  double bucket_mib = 25.0;
  bool zero = false;
  Optimizer optimizer = Optimizer::sgd;
  int experts = 0;    // 0: the model's
  int top_k = 0;      // 0: the model's
  double skew = 0.0;  // exponent of the Zipf bias of the gate
  std::vector<std::vector<Index>>
      token_matrix;  // [from][to] tokens within an EP group; empty: the router decides
  bool bias = true;

  Index tokens() const { return seq * micro_batch; }
};

struct Pattern {
  std::string_view name;     // "tp-allgather"; the program is weft-<name>
  std::string_view summary;  // one line for --help
  Dimension dim;  // the dimension it exercises; a run without layout options gives it all ranks
  std::vector<Direction> directions;  // the cells it has, one program each
  std::vector<CollectiveKind> sweep;  // collectives that --sizes sweeps; empty: send/recv
  std::string_view default_model;
  Program (*make)(const ModelShape&, const Layout&, const PatternOptions&, Rank);
  /// The same computation unsharded, on one rank, on the tensors' global shapes and names: what the
  /// double-precision reference evaluates. Every checked tensor of make() appears here under its
  /// name with its global shape.
  Program (*make_reference)(const ModelShape&, const Layout&, const PatternOptions&);
  /// The program's own options as canonical "key=value" texts, those that make a cell another cell.
  std::vector<std::string> (*option_texts)(const PatternOptions&);
};

const std::vector<const Pattern*>& patterns();
/// Throws Error(usage) that lists the known names.
const Pattern& find_pattern(std::string_view name);

/// One collective (or a send/recv pair between ranks 0 and 1 of the group) of a message-size sweep:
/// every rank contributes `bytes_per_rank` bytes (all_gather: its shard; all_reduce: the whole
/// buffer; reduce_scatter: the shard it receives; all_to_all_v: to all peers together, split
/// evenly; send: the message). Throws Error(usage) if the size is not a multiple of what the
/// operation needs.
Program make_sweep(CollectiveKind kind, bool point_to_point, const Layout& layout, Dimension dim,
                   Bytes bytes_per_rank, DType dtype, Rank rank);

/// A scene of the source documents, played by the pattern's program as `--scene ID`: text as in the
/// source, and the settings its run uses.
struct Scene {
  std::string_view id;       // "S4"
  std::string_view pattern;  // which program plays it ("*": every one)
  std::string_view title;
  int ranks;               // it needs at least
  std::string_view model;  // empty: the pattern's default
  void (*apply)(PatternOptions&, LayoutSpec&);
  std::string (*text)(const ModelShape&, const Layout&,
                      const PatternOptions&);  // labels, steps, bytes; source | practice
};
const std::vector<Scene>& scenes();
/// Throws Error(usage) that lists the scenes of this pattern.
const Scene& find_scene(std::string_view id, std::string_view pattern);

// ---- Accounting, from the program alone
// -----------------------------------------------------------------------------

/// Logical traffic of one step of one rank, per iteration.
struct OperationTraffic {
  std::string label;
  std::string operation;  // "all_gather", "send", ...
  Dimension dim = Dimension::none;
  Direction direction = Direction::forward;
  Group group;
  std::int64_t times = 1;  // per iteration
  Bytes message = 0;       // M: the full gathered or reduced buffer; all_to_all_v: this rank's send
                      // buffer (where counts are known at run time only: the lesser capacity of
                      // both sides); send: the message
  Bytes sent = 0;  // logical bytes this rank must send off-rank, bandwidth-optimal: the formulas of
                   // the README
  bool run_time = false;  // sizes are expectations or capacities, known at run time only
};
/// In the order of the steps; a receive is accounted by its sender. `rank`: whose program this is;
/// where it is not told
/// (-1), an all_to_all_v with fixed counts is taken as even, and a broadcast's root is who has an
/// input.
std::vector<OperationTraffic> operations_of(const Program& program, Rank rank = -1);

/// Sum over operations of times*message (the row's bytes_logical).
Bytes logical_bytes(const Program& program);
/// Tensor bytes of a program on this rank.
Bytes memory_bytes(const Program& program);

}  // namespace weft
