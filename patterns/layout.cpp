#include "patterns/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "patterns/error.hpp"

namespace weft {

namespace {

using Axes = std::vector<RankSet::Axis>;

/// "tp-cp-ep-dp-pp" as dimensions. Each of the five must appear once.
std::vector<Dimension> parse_order(const std::string& order) {
  constexpr std::array all{Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                           Dimension::pp};
  std::vector<Dimension> dims;
  for (std::size_t begin = 0; begin <= order.size();) {
    const std::size_t end = std::min(order.find('-', begin), order.size());
    const std::string_view name = std::string_view(order).substr(begin, end - begin);
    const auto dim =
        std::find_if(all.begin(), all.end(), [name](Dimension d) { return to_string(d) == name; });
    if (dim == all.end() || std::find(dims.begin(), dims.end(), *dim) != dims.end()) {
      fail_usage(
          fmt::format("order '{}' has '{}' where a name not yet used of tp, cp, ep, dp, pp is "
                      "needed; the default is tp-cp-ep-dp-pp",
                      order, name));
    }
    dims.push_back(*dim);
    begin = end + 1;
  }
  if (dims.size() != all.size()) {
    fail_usage(
        fmt::format("order '{}' names {} of the five dimensions; it needs tp, cp, ep, dp and pp "
                    "once each, as in tp-cp-ep-dp-pp",
                    order, dims.size()));
  }
  return dims;
}

void require_positive(const LayoutSpec& spec) {
  const auto require = [](std::string_view name, int value, int least) {
    if (value < least) {
      fail_usage(fmt::format("--{} {} is not a number of ranks; it must be at least {}{}", name,
                             value, least, least == 0 ? " (0 takes what is left)" : ""));
    }
  };
  require("tp", spec.tp, 1);
  require("cp", spec.cp, 1);
  require("ep", spec.ep, 1);
  require("pp", spec.pp, 1);
  require("dp", spec.dp, 0);
  require("etp", spec.etp, 0);
}

int etp_of(const LayoutSpec& spec) { return spec.etp > 0 ? spec.etp : spec.tp; }

/// The dp that fills `world`, or the one asked for if it does.
int fitting_dp(const LayoutSpec& spec, int world) {
  const std::int64_t others = std::int64_t{spec.tp} * spec.cp * spec.pp;
  if (spec.dp > 0 && others * spec.dp != world) {
    fail_usage(fmt::format(
        "tp {} * cp {} * dp {} * pp {} = {} ranks, but there are {}; start {} ranks, or "
        "leave --dp out",
        spec.tp, spec.cp, spec.dp, spec.pp, others * spec.dp, world, others * spec.dp));
  }
  if (world % others != 0) {
    fail_usage(
        fmt::format("tp {} * cp {} * pp {} = {} does not divide {} ranks; start a multiple of {} "
                    "ranks, or change --tp, --cp or --pp",
                    spec.tp, spec.cp, spec.pp, others, world, others));
  }
  return static_cast<int>(world / others);
}

/// Data parallelism of experts: what etp and ep leave of the ranks of a pipeline stage.
int fitting_edp(const LayoutSpec& spec, int world) {
  const int stage = world / spec.pp;
  const std::int64_t expert = std::int64_t{etp_of(spec)} * spec.ep;
  if (stage % expert != 0) {
    fail_usage(fmt::format(
        "ep {} * etp {} = {} does not divide the {} ranks of a pipeline stage (tp*cp*dp); "
        "choose an --ep that divides {}{}",
        spec.ep, etp_of(spec), expert, stage,
        stage % etp_of(spec) == 0 ? stage / etp_of(spec) : stage,
        stage % etp_of(spec) == 0 ? "" : " and an --etp that divides it too"));
  }
  return static_cast<int>(stage / expert);
}

/// One group of the grid: `rank` moved along the axes. Neighbouring axes that count on are merged
/// and axes of one rank are left out, so that equal sets are equal values.
RankSet set_through(Rank rank, Axes axes) {
  std::sort(axes.begin(), axes.end(),
            [](const auto& a, const auto& b) { return a.stride < b.stride; });
  RankSet set{.base = rank, .axes = {}};
  for (const RankSet::Axis& axis : axes) {
    set.base -= rank / axis.stride % axis.count * axis.stride;
    if (axis.count == 1) continue;
    const bool counts_on =
        !set.axes.empty() && set.axes.back().stride * set.axes.back().count == axis.stride;
    if (counts_on) {
      set.axes.back().count *= axis.count;
    } else {
      set.axes.push_back(axis);
    }
  }
  return set;
}

}  // namespace

int Layout::ranks_needed(const LayoutSpec& spec) {
  require_positive(spec);
  const std::int64_t dense = std::int64_t{spec.tp} * spec.cp * std::max(spec.dp, 1);
  // The least dp that makes etp*ep divide tp*cp*dp, where the user left dp open.
  const std::int64_t stage =
      spec.dp > 0 ? dense : std::lcm(dense, std::int64_t{etp_of(spec)} * spec.ep);
  const std::int64_t ranks = stage * spec.pp;
  if (ranks > std::numeric_limits<int>::max()) {
    fail_usage(fmt::format(
        "a layout of {} ranks is larger than anything that runs; lower --tp, --cp, --dp, "
        "--ep or --pp",
        ranks));
  }
  return static_cast<int>(ranks);
}

Layout Layout::make(const LayoutSpec& spec, int world) {
  require_positive(spec);
  if (world < 1)
    fail_usage(fmt::format("a world of {} ranks cannot run; start at least one", world));
  Layout layout;
  layout.world_ = world;
  layout.tp_ = spec.tp;
  layout.cp_ = spec.cp;
  layout.ep_ = spec.ep;
  layout.pp_ = spec.pp;
  layout.dp_ = fitting_dp(spec, world);
  layout.etp_ = etp_of(spec);
  layout.edp_ = fitting_edp(spec, world);
  layout.order_ = spec.order;
  layout.number_ranks();
  return layout;
}

void Layout::number_ranks() {
  int dense_stride = 1, expert_stride = 1;
  for (Dimension dim : parse_order(order_)) {
    const int dense = dim == Dimension::ep ? 1 : size(dim);
    const int expert = expert_count(dim);
    dense_.push_back({dim, dense, dense_stride});
    expert_.push_back({dim, expert, expert_stride});
    dense_stride *= dense;
    expert_stride *= expert;
  }
  const Axis& stage = axis_of(dense_, Dimension::pp);
  const Axis& expert_stage = axis_of(expert_, Dimension::pp);
  if (pp_ > 1 && stage.stride != expert_stage.stride) {
    fail_usage(fmt::format(
        "with order {} the pipeline of rank 0 goes on at rank {} for dense layers, at "
        "rank {} for experts (ep {}, etp {}); put pp last in --order, or choose ep and etp so that "
        "etp*ep equals tp*cp where ep or dp stands behind pp",
        order_, stage.stride, expert_stage.stride, ep_, etp_));
  }
}

int Layout::expert_count(Dimension dim) const {
  switch (dim) {
    case Dimension::tp:
      return etp_;
    case Dimension::ep:
      return ep_;
    case Dimension::dp:
      return edp_;
    case Dimension::pp:
      return pp_;
    default:
      return 1;
  }
}

const Layout::Axis& Layout::axis_of(const std::vector<Axis>& axes, Dimension dim) {
  return *std::find_if(axes.begin(), axes.end(),
                       [dim](const Axis& axis) { return axis.dim == dim; });
}

int Layout::size(Dimension dim) const {
  switch (dim) {
    case Dimension::tp:
      return tp_;
    case Dimension::cp:
      return cp_;
    case Dimension::ep:
      return ep_;
    case Dimension::dp:
      return dp_;
    case Dimension::pp:
      return pp_;
    case Dimension::none:
      return world_;
  }
  return world_;
}

Coordinates Layout::coordinates(Rank rank) const {
  require_rank(rank);
  const auto digit = [rank](const std::vector<Axis>& axes, Dimension dim) {
    const Axis& axis = axis_of(axes, dim);
    return rank / axis.stride % axis.count;
  };
  return {.tp = digit(dense_, Dimension::tp),
          .cp = digit(dense_, Dimension::cp),
          .dp = digit(dense_, Dimension::dp),
          .pp = digit(dense_, Dimension::pp),
          .etp = digit(expert_, Dimension::tp),
          .ep = digit(expert_, Dimension::ep),
          .edp = digit(expert_, Dimension::dp)};
}

void Layout::require_rank(Rank rank) const {
  if (rank < 0 || rank >= world_) {
    fail_usage(fmt::format("rank {} is outside the {} ranks of the layout; the last is {}", rank,
                           world_, world_ - 1));
  }
}

Group Layout::group_along(const std::vector<Axis>& grid, std::initializer_list<Dimension> along,
                          Dimension name, Rank rank) const {
  require_rank(rank);
  Axes axes;
  for (Dimension dim : along) {
    const Axis& axis = axis_of(grid, dim);
    axes.push_back({.count = axis.count, .stride = axis.stride});
  }
  return {.dim = name, .ranks = set_through(rank, std::move(axes))};
}

Group Layout::group(Dimension dim, Rank rank) const {
  if (dim == Dimension::none) {
    require_rank(rank);
    return {.dim = dim, .ranks = set_through(rank, {{.count = world_, .stride = 1}})};
  }
  return group_along(dim == Dimension::ep ? expert_ : dense_, {dim}, dim, rank);
}

Group Layout::expert_data_group(Rank rank) const {
  return group_along(expert_, {Dimension::dp}, Dimension::dp, rank);
}

Group Layout::gradient_group(Rank rank) const {
  return group_along(dense_, {Dimension::cp, Dimension::dp}, Dimension::dp, rank);
}

std::vector<Group> Layout::groups(Dimension dim) const {
  std::vector<Group> all;
  for (Rank rank = 0; rank < world_; ++rank) {
    Group candidate = group(dim, rank);
    if (candidate.ranks.base == rank) all.push_back(std::move(candidate));
  }
  return all;
}

std::string Layout::text() const {
  std::string sizes;
  const auto append = [&sizes](std::string_view name, int count) {
    sizes += fmt::format("{}{}{}", sizes.empty() ? "" : ".", name, count);
  };
  for (Dimension dim :
       {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp, Dimension::pp}) {
    if (size(dim) > 1) append(to_string(dim), size(dim));
  }
  if (etp_ != tp_) append("etp", etp_);
  if (sizes.empty()) append("tp", 1);
  return fmt::format("{} {}", sizes, order_);
}

}  // namespace weft
