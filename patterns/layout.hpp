// The rank grid: how many ranks each parallelism has, in which order ranks are numbered, and the
// groups that follow.
//
//   Layout layout = Layout::make({.tp = 2, .dp = 4, .pp = 2}, 16);   // order tp-cp-ep-dp-pp,
//   leftmost fastest layout.group(Dimension::dp, 0);   // {0,2,4,6};  pp of rank 0: {0,8}
//
// world = tp*cp*dp*pp. Experts live on a second grid over the same ranks: etp*ep*edp*pp with
// edp = world/(etp*ep*pp); ep divides dp*cp*tp/etp and multiplies nothing.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "patterns/program.hpp"

namespace weft {

struct LayoutSpec {
  int tp = 1, cp = 1, ep = 1, pp = 1;
  int dp = 0;                            // 0: what is left
  int etp = 0;                           // 0: tp
  std::string order = "tp-cp-ep-dp-pp";  // any order of the five names, leftmost fastest
};

struct Coordinates {
  int tp = 0, cp = 0, dp = 0, pp = 0;  // on the dense grid
  int etp = 0, ep = 0, edp = 0;        // on the expert grid
};

class Layout {
 public:
  /// Ranks that `spec` needs: tp*cp*pp*max(dp,1), times what ep needs where dp is 0.
  static int ranks_needed(const LayoutSpec& spec);
  /// Throws Error(usage) naming the numbers that do not fit and what would: sizes below 1, a
  /// product that is not `world`, an ep that does not divide, an unknown or incomplete order.
  static Layout make(const LayoutSpec& spec, int world);

  int world() const { return world_; }
  int size(Dimension dim) const;  // tp, cp, ep, dp, pp; none: the world
  int etp() const { return etp_; }
  int edp() const { return edp_; }  // data parallelism of expert weights
  const std::string& order() const { return order_; }
  Coordinates coordinates(Rank rank) const;

  /// The group of `dim` that holds `rank`, in ascending index. Dimension::ep: the expert group;
  /// none: the world.
  Group group(Dimension dim, Rank rank) const;
  /// Ranks that hold the same expert weights (data parallelism of experts).
  Group expert_data_group(Rank rank) const;
  /// Data-parallel group for dense gradients: dp and cp together.
  Group gradient_group(Rank rank) const;
  /// All distinct groups of a dimension, by their first rank.
  std::vector<Group> groups(Dimension dim) const;
  /// "tp2.dp4.pp2 tp-cp-ep-dp-pp", sizes of 1 left out: the canonical text for a row.
  std::string text() const;

 private:
  struct Axis {
    Dimension dim;
    int count;
    int stride;
  };
  static const Axis& axis_of(const std::vector<Axis>& axes, Dimension dim);
  void number_ranks();
  int expert_count(Dimension dim) const;
  void require_rank(Rank rank) const;
  Group group_along(const std::vector<Axis>& grid, std::initializer_list<Dimension> along,
                    Dimension name, Rank rank) const;

  std::vector<Axis> dense_, expert_;  // expert_: tp stands for etp, dp for edp
  int world_ = 1, etp_ = 1, edp_ = 1;
  int tp_ = 1, cp_ = 1, ep_ = 1, dp_ = 1, pp_ = 1;
  std::string order_;
};

}  // namespace weft
