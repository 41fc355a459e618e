#include "bench/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {
namespace {

// Without layout options the pattern's own dimension takes all ranks.
LayoutSpec spec_for(const Options& options, const Pattern& pattern, int world) {
  LayoutSpec spec = options.layout;
  if (options.layout_given) return spec;
  switch (pattern.dim) {
    case Dimension::tp:
      spec.tp = world;
      break;
    case Dimension::cp:
      spec.cp = world;
      break;
    case Dimension::ep:
      spec.ep = world;
      break;
    case Dimension::pp:
      spec.pp = world;
      break;
    case Dimension::dp:
    case Dimension::none:
      break;
  }
  return spec;
}

PatternOptions resolved(const Options& options, const ModelShape& model, DType dtype,
                        Direction direction) {
  PatternOptions result = options.pattern;
  result.dtype = dtype;
  result.direction = direction;
  if (result.seq == 0) result.seq = model.seq;
  if (result.layers == 0) result.layers = model.layers;
  return result;
}

std::vector<Case> model_cases(const Options& options, const Pattern& pattern,
                              const ModelShape& model) {
  std::vector<Case> cases;
  const auto& directions = options.directions.empty() ? pattern.directions : options.directions;
  for (Direction direction : directions) {
    if (std::ranges::find(pattern.directions, direction) == pattern.directions.end()) {
      fail_usage(fmt::format("--direction {}: weft-{} has no such part", to_string(direction),
                             pattern.name));
    }
    for (DType dtype : options.dtypes)
      cases.push_back({resolved(options, model, dtype, direction), {}});
  }
  return cases;
}

std::vector<Case> sweep_cases(const Options& options, const Pattern& pattern,
                              const ModelShape& model) {
  std::vector<Case> cases;
  std::vector<Sweep> kinds;
  for (CollectiveKind kind : pattern.sweep) kinds.push_back({kind, false, 0});
  if (kinds.empty()) kinds.push_back({CollectiveKind::all_reduce, true, 0});
  for (const Sweep& kind : kinds) {
    for (DType dtype : options.dtypes) {
      for (Bytes bytes : options.sizes) {
        Case& c = cases.emplace_back();
        c.options = resolved(options, model, dtype, pattern.directions.front());
        c.sweep = Sweep{kind.kind, kind.point_to_point, bytes};
      }
    }
  }
  return cases;
}

bool has(const TransportInfo& transport, std::string_view algorithm) {
  return std::ranges::find(transport.algorithms, algorithm) != transport.algorithms.end();
}

// Each transport runs those of the asked-for algorithms that it has, its own where it has none of
// them: for comparison.
std::vector<std::string> algorithms_of(const TransportInfo& transport, const Options& options) {
  std::vector<std::string> result;
  std::ranges::copy_if(options.algorithms, std::back_inserter(result),
                       [&](const std::string& name) { return has(transport, name); });
  if (result.empty()) result.emplace_back(transport.algorithms.front());
  return result;
}

// One that none of the measured transports has is an error.
void check_algorithms(const Options& options, const std::vector<const TransportInfo*>& measured) {
  std::vector<std::string_view> known, having;
  for (const TransportInfo& transport : transports())
    known.insert(known.end(), transport.algorithms.begin(), transport.algorithms.end());
  for (const std::string& name : options.algorithms) {
    if (std::ranges::any_of(measured, [&](const auto* transport) { return has(*transport, name); }))
      continue;
    for (const TransportInfo& transport : transports())
      if (has(transport, name)) having.push_back(transport.name);
    if (having.empty()) {
      fail_usage(
          fmt::format("--algorithm '{}' is unknown; there are {}", name, fmt::join(known, ", ")));
    }
    std::vector<std::string_view> names;
    for (const TransportInfo* transport : measured) names.push_back(transport->name);
    fail_usage(
        fmt::format("--algorithm '{}' is not one of {}; choose another (--list-transports) "
                    "or --transport {}",
                    name, fmt::join(names, ", "), fmt::join(having, ",")));
  }
}

std::string shape_text(const Plan& plan, const Case& c) {
  const PatternOptions& o = c.options;
  if (c.sweep) return fmt::format("{}.{}B", c.sweep->name(), c.sweep->bytes);
  return fmt::format("{}.s{}.b{}.m{}.L{}", plan.model.name, o.seq, o.micro_batch, o.micro_batches,
                     o.layers);
}

// "tp2.dp4"; the order of ranks only where it is not the usual one.
std::string layout_text(const Layout& layout) {
  const std::string text = layout.text(), sizes = text.substr(0, text.find(' '));
  return layout.order() == LayoutSpec{}.order ? sizes : sizes + "@" + layout.order();
}

std::string cell_id(const Plan& plan, const Case& c, const Cell& cell) {
  const std::string options = plan.options_text(c);
  return fmt::format("{}/{}/{}/{}/{}{}{}/{}.{}/{}", plan.pattern->name,
                     c.sweep ? "sweep" : to_string(c.options.direction), shape_text(plan, c),
                     to_string(c.options.dtype), layout_text(plan.layout),
                     options.empty() ? "" : "/", options, cell.transport, cell.algorithm,
                     to_string(cell.phase));
}

}  // namespace

int ranks_needed(const Options& options, const Pattern& pattern) {
  return options.layout_given ? Layout::ranks_needed(spec_for(options, pattern, 1)) : 1;
}

Program Plan::program(const Case& c, Rank rank) const {
  if (!c.sweep) return pattern->make(model, layout, c.options, rank);
  return make_sweep(c.sweep->kind, c.sweep->point_to_point, layout, pattern->dim, c.sweep->bytes,
                    c.options.dtype, rank);
}

Program Plan::reference(const Case& c) const {
  return c.sweep ? Program{} : pattern->make_reference(model, layout, c.options);
}

std::string Plan::options_text(const Case& c) const {
  std::vector<std::string> texts;
  if (!c.sweep) texts = pattern->option_texts(c.options);
  if (hot) texts.emplace_back("hot");
  return fmt::format("{}", fmt::join(texts, ","));
}

Plan make_plan(const Options& options, const Pattern& pattern, int world,
               const std::vector<const TransportInfo*>& transports) {
  check_algorithms(options, transports);
  Plan plan{
      &pattern,
      find_model(options.model.empty() ? pattern.default_model : std::string_view(options.model)),
      Layout::make(spec_for(options, pattern, world), world),
      {},
      {},
      options.hot};
  plan.cases = options.sizes.empty() ? model_cases(options, pattern, plan.model)
                                     : sweep_cases(options, pattern, plan.model);
  for (const Case& c : plan.cases)
    plan.program(c, 0);  // what cannot be built is said before anything is measured
  for (std::size_t i = 0; i < plan.cases.size(); ++i) {
    for (const TransportInfo* transport : transports) {
      for (const std::string& algorithm : algorithms_of(*transport, options)) {
        for (Phase phase : options.phases) {
          Cell cell{i, std::string(transport->name), algorithm, phase, ""};
          cell.id = cell_id(plan, plan.cases[i], cell);
          plan.cells.push_back(std::move(cell));
        }
      }
    }
  }
  return plan;
}

TransportChoice choose_transports(const Options& options, Bootstrap& bootstrap) {
  TransportChoice choice;
  std::vector<std::string> refused;
  std::vector<std::string_view> available;
  bool any = false;
  for (const TransportInfo& info : transports()) {
    const std::string why = info.unavailable(bootstrap);
    const bool wanted =
        (options.transports.empty() && !info.hidden) ||
        std::ranges::find(options.transports, info.name) != options.transports.end();
    if (why.empty() && !info.hidden) available.push_back(info.name);
    if (!wanted) continue;
    any = any || why.empty();
    if (!why.empty()) refused.push_back(fmt::format("{}: {}", info.name, why));
    if (why.empty() || options.transports_given) choice.transports.push_back(&info);
  }
  for (const std::string& name : options.transports)
    find_transport(name);  // throws on an unknown one
  const std::string text = fmt::format("transport not available here: {}; available: {}",
                                       fmt::join(refused, "; "), fmt::join(available, ", "));
  if (!any) fail_usage(text);
  if (!refused.empty() && options.transports_given) choice.missing = text;
  return choice;
}

std::string list_transports_text(Bootstrap& bootstrap) {
  std::string text = fmt::format("{:<8} {:<44} {}\n", "name", "what moves the bytes", "here");
  for (const TransportInfo& info : transports()) {
    const std::string why = info.unavailable(bootstrap);
    text += fmt::format("{:<8} {:<44} {}; algorithms: {}\n", info.name, info.summary,
                        why.empty() ? "available" : "not available: " + why,
                        fmt::join(info.algorithms, ", "));
  }
  return text;
}

}  // namespace weft
