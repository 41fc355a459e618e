// --show-plan: everything that is known without running: groups, steps, bytes, and the wire traffic
// of each algorithm by its closed form. Ranks are classed by what they do, so a plan of 262,144
// ranks is as short as one of eight.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/plan.hpp"
#include "patterns/error.hpp"
#include "transports/schedule.hpp"
#include "transports/shm_native_sizes.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// A layout that names no dp has the ranks it needs at least, a scene those that it is drawn with.
Plan plan_without_ranks(const Options& options, const Pattern& pattern) {
  static const TransportInfo predicted{"plan", "", {"default"}, {}, {}};
  Options plain = options;
  plain.algorithms.clear();
  int world = ranks_needed(options, pattern);
  if (!options.scene.empty() && !options.layout_given) {
    world = std::max(world, find_scene(options.scene, pattern.name).ranks);
  }
  return make_plan(plain, pattern, world, {&predicted});
}

// First ranks of each pipeline stage: programs differ between stages, elsewhere only in which shard
// they hold.
std::vector<Rank> representatives(const Layout& layout) {
  std::map<int, Rank> first;
  for (Rank rank = layout.world() - 1; rank >= 0; --rank) {
    const int stage = layout.coordinates(rank).pp;
    if (stage == 0 || stage == layout.size(Dimension::pp) - 1 || stage == 1) first[stage] = rank;
  }
  std::vector<Rank> ranks;
  for (const auto& [stage, rank] : first) ranks.push_back(rank);
  return ranks;
}

std::vector<Index> schedule_counts(const Collective& op) {
  if (!op.counts.empty()) return op.counts;
  return {op.in.elements()};
}

// Bytes that this rank puts on the wire in one operation under each algorithm; only operations
// whose counts are known.
std::map<std::string, Bytes> predicted_wire(const Program& program, const Collective& op,
                                            Rank rank) {
  std::map<std::string, Bytes> bytes;
  const Group& group = program.groups[static_cast<std::size_t>(op.group)];
  if (op.run_time) return bytes;
  ScheduleInput input;
  input.kind = static_cast<OperationKind>(op.kind);
  input.size = group.ranks.size();
  input.root = op.root;
  input.hosts.assign(static_cast<std::size_t>(input.size), 0);
  if (op.kind == CollectiveKind::all_to_all_v) {
    input.matrix.assign(static_cast<std::size_t>(input.size),
                        op.counts);  // every member sends alike in a plan
  } else {
    input.counts = schedule_counts(op);
  }
  const DType dtype = program.tensors[static_cast<std::size_t>(op.in.tensor)].dtype;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.unsuitable(input).empty()) continue;
    const TrafficTotals totals = algorithm.traffic(input, group.ranks.index_of(rank));
    bytes[std::string(algorithm.name)] = totals.sent * size_of(dtype);
  }
  const TrafficTotals native =
      shm_native_traffic(input, size_of(dtype), group.ranks.index_of(rank));
  bytes[std::string(kNativeAlgorithm)] = native.sent * size_of(dtype);  // of shm
  return bytes;
}

ordered_json operation_json(const OperationTraffic& traffic) {
  ordered_json group = {{"size", traffic.group.ranks.size()}, {"base", traffic.group.ranks.base}};
  for (const RankSet::Axis& axis : traffic.group.ranks.axes) {
    group["axes"].push_back({{"count", axis.count}, {"stride", axis.stride}});
  }
  return {{"label", traffic.label},
          {"operation", traffic.operation},
          {"dimension", to_string(traffic.dim)},
          {"direction", to_string(traffic.direction)},
          {"group", group},
          {"times", traffic.times},
          {"message_bytes", traffic.message},
          {"sent_bytes", traffic.sent},
          {"run_time", traffic.run_time}};
}

ordered_json wire_json(const Program& program, Rank rank) {
  ordered_json wire = ordered_json::array();
  for_each_leaf(program.steps, [&](const Step& step, std::int64_t times) {
    const auto* op = std::get_if<Collective>(&step.op);
    if (!op) return;
    ordered_json entry = {{"label", step.label}, {"times", times}};
    for (const auto& [algorithm, bytes] : predicted_wire(program, *op, rank))
      entry["sent_bytes"][algorithm] = bytes;
    if (entry.contains("sent_bytes")) wire.push_back(entry);
  });
  return wire;
}

ordered_json rank_json(const Plan& plan, const Case& c, Rank rank) {
  const Program program = plan.program(c, rank);
  validate(program);
  ordered_json result = {{"rank", rank},
                         {"stage", plan.layout.coordinates(rank).pp},
                         {"memory_bytes", memory_bytes(program)},
                         {"logical_bytes", logical_bytes(program)}};
  result["operations"] = ordered_json::array();
  for (const OperationTraffic& traffic : operations_of(program, rank))
    result["operations"].push_back(operation_json(traffic));
  result["predicted_wire"] = wire_json(program, rank);
  result["program"] = ordered_json::parse(to_json(program));
  return result;
}

ordered_json plan_json(const Plan& plan) {
  ordered_json result = {{"schema", "weft-plan-1"},      {"pattern", plan.pattern->name},
                         {"model", plan.model.name},     {"world", plan.layout.world()},
                         {"layout", plan.layout.text()}, {"order", plan.layout.order()}};
  for (const Case& c : plan.cases) {
    ordered_json entry = {{"direction", c.sweep ? "sweep" : to_string(c.options.direction)},
                          {"dtype", to_string(c.options.dtype)},
                          {"seq", c.options.seq},
                          {"micro_batch", c.options.micro_batch},
                          {"micro_batches", c.options.micro_batches},
                          {"layers", c.options.layers},
                          {"options", plan.options_text(c)}};
    if (c.sweep) entry["size"] = c.sweep->bytes;
    for (Rank rank : representatives(plan.layout))
      entry["ranks"].push_back(rank_json(plan, c, rank));
    result["cases"].push_back(entry);
  }
  return result;
}

std::string members_text(const Group& group) {
  const int size = group.ranks.size(), shown = std::min(size, 8);
  std::vector<std::string> members;
  for (int i = 0; i < shown; ++i) members.push_back(fmt::format("{}", group.ranks.at(i)));
  if (shown < size) members.push_back("...");
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

std::string layout_text(const Plan& plan) {
  std::string text = fmt::format("{} ranks, layout {}\n", plan.layout.world(), plan.layout.text());
  for (Dimension dim :
       {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp, Dimension::pp}) {
    const int size = plan.layout.size(dim);
    if (size > 1)
      text += fmt::format("  {} group of rank 0 ({}): {}\n", to_string(dim), size,
                          members_text(plan.layout.group(dim, 0)));
  }
  return text;
}

std::string rank_text(const Plan& plan, const Case& c, Rank rank) {
  const Program program = plan.program(c, rank);
  validate(program);
  std::string text =
      fmt::format("\nrank {} (pipeline stage {}): {} bytes of tensors\n{}", rank,
                  plan.layout.coordinates(rank).pp, memory_bytes(program), to_text(program));
  text += fmt::format("{:<28} {:<15} {:<4} {:>6} {:>16} {:>16}\n", "sends in one iteration",
                      "operation", "dim", "times", "message, bytes", "sent, bytes");
  for (const OperationTraffic& t : operations_of(program, rank)) {
    text += fmt::format("{:<28} {:<15} {:<4} {:>6} {:>16} {:>16}{}\n", t.label, t.operation,
                        to_string(t.dim), t.times, t.message, t.sent,
                        t.run_time ? "  (capacity; real counts at run time)" : "");
  }
  for_each_leaf(program.steps, [&](const Step& step, std::int64_t) {
    const auto* op = std::get_if<Collective>(&step.op);
    if (!op) return;
    std::vector<std::string> parts;
    for (const auto& [name, bytes] : predicted_wire(program, *op, rank))
      parts.push_back(fmt::format("{} {}", name, bytes));
    if (!parts.empty())
      text += fmt::format("  on the wire, {}: {}\n", step.label, fmt::join(parts, ", "));
  });
  return text;
}

std::string plan_text(const Plan& plan) {
  std::string text =
      fmt::format("weft-{}, model {}\n{}", plan.pattern->name, plan.model.name, layout_text(plan));
  for (const Case& c : plan.cases) {
    text += fmt::format("\n== {} {} {}\n",
                        c.sweep ? c.sweep->name() : std::string(to_string(c.options.direction)),
                        to_string(c.options.dtype), plan.options_text(c));
    for (Rank rank : representatives(plan.layout)) text += rank_text(plan, c, rank);
  }
  return text;
}

}  // namespace

std::string show_plan_text(const Options& options, const Pattern& pattern, bool json) {
  const Plan plan = plan_without_ranks(options, pattern);
  std::string text;
  if (!options.scene.empty()) {
    text = find_scene(options.scene, pattern.name)
               .text(plan.model, plan.layout, plan.cases.front().options) +
           "\n\n";
  }
  return json ? plan_json(plan).dump(1) : text + plan_text(plan);
}

}  // namespace weft
