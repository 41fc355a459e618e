// Which cells a run has: cases (one program in one shape) x transports x algorithms x phases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/options.hpp"
#include "patterns/pattern.hpp"
#include "transports/communicator.hpp"

namespace weft {

/// A message-size sweep of one collective in place of a model's layer.
struct Sweep {
  CollectiveKind kind = CollectiveKind::all_reduce;
  bool point_to_point = false;
  Bytes bytes = 0;  // per rank
  std::string name() const { return point_to_point ? "send" : std::string(to_string(kind)); }
};

/// What stays when transport, algorithm and phase change.
struct Case {
  PatternOptions options;  // dtype and direction set
  std::optional<Sweep> sweep;
};

struct Cell {
  std::size_t case_index = 0;
  std::string transport, algorithm;
  Phase phase = Phase::comm;
  std::string id;  // canonical: the same in every run that measures the same thing
};

struct Plan {
  const Pattern* pattern = nullptr;
  ModelShape model;
  Layout layout;
  std::vector<Case> cases;
  std::vector<Cell> cells;  // cells of one (case, transport, algorithm) stand together
  bool hot = false;         // buffers do not rotate

  Program program(const Case& c, Rank rank) const;
  Program reference(const Case& c) const;
  std::string options_text(const Case& c) const;
};

/// Ranks that the options ask for: what the layout names, 1 without any.
int ranks_needed(const Options& options, const Pattern& pattern);

/// Throws Error(usage) for a layout that does not fit `world`, an unknown model or algorithm, an
/// option that does not fit the model.
Plan make_plan(const Options& options, const Pattern& pattern, int world,
               const std::vector<const TransportInfo*>& transports);

/// Which transports a run has.
struct TransportChoice {
  std::vector<const TransportInfo*> transports;
  /// What is wrong with those that were asked for by name and are not available here: their cells
  /// become rows that say so, and the run, after all others, ends with exit code 2. Mostly empty.
  std::string missing{};
};

/// Those that the options name, or all that are available. Error(usage) with the reasons and what
/// is available where none is left. Collective.
TransportChoice choose_transports(const Options& options, Bootstrap& bootstrap);

/// The table of --list-transports. Collective.
std::string list_transports_text(Bootstrap& bootstrap);

/// What --show-plan prints: layout and groups, the program, operations with bytes, predicted wire
/// traffic per algorithm; needs no ranks. `json`: the same as one JSON object.
std::string show_plan_text(const Options& options, const Pattern& pattern, bool json);

}  // namespace weft
