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
/// option that does not fit the model. `usable` are the transports to run, already known to be
/// available.
Plan make_plan(const Options& options, const Pattern& pattern, int world,
               const std::vector<const TransportInfo*>& usable);

/// Available transports among those the options name (or all). One asked for by name that is not
/// available: Error(usage) with its reason and what is available. Collective.
std::vector<const TransportInfo*> usable_transports(const Options& options, Bootstrap& bootstrap);

/// The table of --list-transports. Collective.
std::string list_transports_text(Bootstrap& bootstrap);

/// What --show-plan prints: layout and groups, the program, operations with bytes, predicted wire
/// traffic per algorithm; needs no ranks. `json`: the same as one JSON object.
std::string show_plan_text(const Options& options, const Pattern& pattern, bool json);

}  // namespace weft
