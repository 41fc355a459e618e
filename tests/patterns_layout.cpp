#include "patterns/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "patterns/error.hpp"

namespace weft {
namespace {

using Ranks = std::vector<Rank>;

Ranks members(const Group& group) { return group.ranks.members(); }

std::string error_of(const LayoutSpec& spec, int world) {
  try {
    Layout::make(spec, world);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

/// The groups by another way than strides: sorts all ranks by their coordinates, nested as the
/// order says.
std::vector<Ranks> groups_by_counting(std::vector<std::pair<std::string, int>> order,
                                      const std::string& dim) {
  int world = 1;
  for (const auto& [name, count] : order) world *= count;
  std::vector<Ranks> groups;
  std::vector<std::vector<int>> keys;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<int> key;
    int rest = rank;
    for (const auto& [name, count] : order) {
      if (name != dim) key.push_back(rest % count);
      rest /= count;
    }
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found == keys.end()) {
      keys.push_back(key);
      groups.push_back({rank});
    } else {
      groups[static_cast<std::size_t>(found - keys.begin())].push_back(rank);
    }
  }
  return groups;
}

std::vector<Ranks> listed(const Layout& layout, Dimension dim) {
  std::vector<Ranks> all;
  for (const Group& group : layout.groups(dim)) all.push_back(members(group));
  return all;
}

TEST(Layout, SixteenRanksAsInTheMegatronExample) {
  const Layout layout = Layout::make({.tp = 2, .pp = 2, .dp = 4}, 16);
  EXPECT_EQ(members(layout.group(Dimension::tp, 0)), (Ranks{0, 1}));
  EXPECT_EQ(members(layout.group(Dimension::dp, 0)), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(members(layout.group(Dimension::pp, 0)), (Ranks{0, 8}));
  EXPECT_EQ(members(layout.group(Dimension::dp, 13)), (Ranks{9, 11, 13, 15}));
  EXPECT_EQ(layout.text(), "tp2.dp4.pp2 tp-cp-ep-dp-pp");
}

TEST(Layout, DataParallelismTakesWhatIsLeft) {
  const Layout layout = Layout::make({.tp = 2, .pp = 2}, 16);
  EXPECT_EQ(layout.size(Dimension::dp), 4);
  EXPECT_EQ(layout.size(Dimension::none), 16);
  EXPECT_EQ(Layout::make({}, 1).text(), "tp1 tp-cp-ep-dp-pp");
}

TEST(Layout, AnyOrderAgreesWithCounting) {
  for (const std::string order :
       {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-ep-cp-tp", "dp-tp-cp-ep-pp"}) {
    const Layout layout =
        Layout::make({.tp = 2, .cp = 3, .pp = 2, .dp = 2, .etp = 6, .order = order}, 24);
    std::vector<std::pair<std::string, int>> axes;
    for (std::size_t i = 0; i < order.size(); i += 3) {
      const std::string name = order.substr(i, 2);
      axes.emplace_back(name, name == "cp" ? 3 : name == "ep" ? 1 : 2);
    }
    for (Dimension dim : {Dimension::tp, Dimension::cp, Dimension::dp, Dimension::pp}) {
      EXPECT_EQ(listed(layout, dim), groups_by_counting(axes, std::string(to_string(dim))))
          << order;
    }
  }
}

TEST(Layout, ExpertsLiveOnASecondGrid) {
  // 16 ranks, tp 2, dp 8: experts with etp 1 spread over 4 ranks, 4 copies of each.
  const Layout layout = Layout::make({.tp = 2, .ep = 4, .etp = 1}, 16);
  EXPECT_EQ(layout.edp(), 4);
  EXPECT_EQ(members(layout.group(Dimension::ep, 5)), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(members(layout.expert_data_group(5)), (Ranks{1, 5, 9, 13}));
  EXPECT_EQ(members(layout.group(Dimension::dp, 5)), (Ranks{1, 3, 5, 7, 9, 11, 13, 15}));
  const Coordinates at = layout.coordinates(5);
  EXPECT_EQ(at.tp, 1);
  EXPECT_EQ(at.dp, 2);
  EXPECT_EQ(at.ep, 1);
  EXPECT_EQ(at.edp, 1);
  EXPECT_EQ(layout.text(), "tp2.ep4.dp8.etp1 tp-cp-ep-dp-pp");
}

TEST(Layout, ExpertGroupsKeepTensorParallelRanksApartByDefault) {
  const Layout layout = Layout::make({.tp = 2, .ep = 2}, 8);
  EXPECT_EQ(layout.etp(), 2);
  EXPECT_EQ(members(layout.group(Dimension::ep, 0)), (Ranks{0, 2}));
  EXPECT_EQ(members(layout.expert_data_group(0)), (Ranks{0, 4}));
}

TEST(Layout, GradientsAreSummedOverContextAndDataParallelRanks) {
  const Layout layout = Layout::make({.tp = 2, .cp = 2, .pp = 2, .dp = 2}, 16);
  EXPECT_EQ(members(layout.gradient_group(1)), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(layout.gradient_group(1).ranks.axes.size(),
            1U);  // one stride, so equal to any such set
}

TEST(Layout, GroupsOfADimensionCoverEveryRankOnce) {
  const Layout layout = Layout::make({.tp = 2, .cp = 2, .ep = 4, .pp = 3, .etp = 2}, 48);
  for (Dimension dim :
       {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp, Dimension::pp}) {
    std::vector<int> seen(48, 0);
    for (const Group& group : layout.groups(dim)) {
      EXPECT_EQ(group.dim, dim);
      for (Rank rank : members(group)) {
        ++seen[static_cast<std::size_t>(rank)];
        EXPECT_EQ(layout.group(dim, rank), group);
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 48);
  }
}

TEST(Layout, SaysHowManyRanksItNeeds) {
  EXPECT_EQ(Layout::ranks_needed({}), 1);
  EXPECT_EQ(Layout::ranks_needed({.tp = 2, .pp = 2, .dp = 4}), 16);
  EXPECT_EQ(Layout::ranks_needed({.ep = 8}), 8);
  EXPECT_EQ(Layout::ranks_needed({.tp = 2, .ep = 4}), 8);            // etp 2
  EXPECT_EQ(Layout::ranks_needed({.tp = 2, .ep = 4, .etp = 1}), 4);  // dp 2 suffices
  EXPECT_EQ(Layout::ranks_needed({.tp = 4, .ep = 6, .pp = 2, .etp = 1}), 24);
  EXPECT_THROW(Layout::ranks_needed({.tp = 0}), Error);
  EXPECT_THROW(Layout::ranks_needed({.tp = 1 << 20, .cp = 1 << 20}), Error);
}

TEST(Layout, PipelinesOfBothGridsMustAgree) {
  // pp before dp: dense pipelines step by tp*cp, those of experts by etp*ep.
  EXPECT_NE(error_of({.tp = 2, .ep = 2, .pp = 2, .order = "tp-cp-ep-pp-dp"}, 8).find("put pp last"),
            std::string::npos);
  EXPECT_EQ(error_of({.tp = 2, .ep = 2, .pp = 2, .etp = 1, .order = "tp-cp-ep-pp-dp"}, 8), "");
  EXPECT_EQ(error_of({.tp = 2, .ep = 2, .pp = 2}, 8), "");
}

TEST(Layout, ErrorsNameTheNumbers) {
  EXPECT_NE(error_of({.tp = 3}, 16).find("does not divide 16"), std::string::npos);
  EXPECT_NE(error_of({.tp = 2, .dp = 4}, 16).find("= 8 ranks, but there are 16"),
            std::string::npos);
  EXPECT_NE(error_of({.tp = 2, .ep = 3}, 8).find("choose an --ep that divides 4"),
            std::string::npos);
  EXPECT_NE(error_of({.tp = 0}, 1).find("--tp 0"), std::string::npos);
  EXPECT_NE(error_of({.order = "tp-dp"}, 1).find("2 of the five"), std::string::npos);
  EXPECT_NE(error_of({.order = "tp-cp-ep-dp-tp"}, 1).find("'tp'"), std::string::npos);
  EXPECT_NE(error_of({.order = "tp-cp-ep-dp-zz"}, 1).find("'zz'"), std::string::npos);
  EXPECT_NE(error_of({.order = ""}, 1).find("tp-cp-ep-dp-pp"), std::string::npos);
  EXPECT_NE(error_of({}, 0).find("at least one"), std::string::npos);
  EXPECT_THROW(Layout::make({}, 2).coordinates(2), Error);
  EXPECT_THROW(Layout::make({}, 2).group(Dimension::tp, -1), Error);
}

}  // namespace
}  // namespace weft
