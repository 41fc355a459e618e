// What validate_world() finds when all ranks are played together.
#include <algorithm>

#include "patterns_validate.hpp"

namespace weft {
namespace {

// ---------------------------------------------------------------------------------------------

/// A rank's program over one or two groups, built step by step.
struct RankProgram {
  Program p;
  View x, y;

  explicit RankProgram(Index elements = 4) {
    x = p.whole(add(p, "X", 1, elements));
    y = p.whole(add(p, "Y", 1, elements));
  }
  GroupId group(Rank base, int count, int stride, Dimension dim = Dimension::pp) {
    return p.add(Group{.dim = dim, .ranks = {.base = base, .axes = {{count, stride}}}});
  }
  StepId then(Op op, const std::string& label, StreamRole stream = StreamRole::comm,
              std::vector<Dependency> after = {}) {
    return p.then(
        Step{.op = std::move(op), .stream = stream, .after = std::move(after), .label = label});
  }
  SendRecv send(GroupId g, int peer) const {
    return {.send = true, .group = g, .peer = peer, .data = x};
  }
  SendRecv recv(GroupId g, int peer) const {
    return {.send = false, .group = g, .peer = peer, .data = y};
  }
  Collective reduce(GroupId g) const {
    return {.kind = CollectiveKind::all_reduce, .group = g, .in = x, .out = y};
  }
};

std::vector<Program> pair_of(const std::function<void(RankProgram&, GroupId, int peer)>& build) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    RankProgram r;
    build(r, r.group(0, 2, 1), 1 - rank);
    programs.push_back(r.p);
  }
  return programs;
}

TEST(ValidateWorld, BothSendFirstIsADeadlockWithoutBuffers) {
  const auto programs = pair_of([](RankProgram& r, GroupId g, int peer) {
    r.then(r.send(g, peer), "give");
    r.then(r.recv(g, peer), "take");
  });
  expect_parts(error_of(programs), {"deadlock", "rank 0 in step 0 'give' waits in send to rank 1",
                                    "rank 1 in step 0 'give'", "PostedTogether"});
}

TEST(ValidateWorld, OneSendsFirstTheOtherReceivesFirst) {
  EXPECT_EQ(error_of(pair_of([](RankProgram& r, GroupId g, int peer) {
              const bool first = peer == 1;
              r.then(first ? r.send(g, peer) : r.recv(g, peer), "a");
              r.then(first ? r.recv(g, peer) : r.send(g, peer), "b");
            })),
            "");
}

TEST(ValidateWorld, PostedTogetherCrosses) {
  EXPECT_EQ(error_of(pair_of([](RankProgram& r, GroupId g, int peer) {
              r.then(PostedTogether{{r.send(g, peer), r.recv(g, peer)}}, "cross");
            })),
            "");
}

TEST(ValidateWorld, MessageSizesMustAgree) {
  auto programs = pair_of([](RankProgram& r, GroupId g, int peer) {
    r.then(peer == 1 ? r.send(g, peer) : r.recv(g, peer), "move");
  });
  EXPECT_EQ(error_of(programs), "");
  std::get<SendRecv>(programs[1].steps[0].op).data.cols = 3;
  expect_parts(error_of(programs),
               {"rank 0 in step 0 'move'", "rank 1", "4 elements of f32", "3 of f32"});
}

TEST(ValidateWorld, AMessageWithoutPartnerIsNamed) {
  const auto programs = pair_of([](RankProgram& r, GroupId g, int peer) {
    if (peer == 1) r.then(r.send(g, peer), "lost");
  });
  expect_parts(error_of(programs), {"unmatched", "rank 0 in step 0 'lost'", "rank 1 has ended"});
}

TEST(ValidateWorld, NobodySendsToItself) {
  const auto programs =
      pair_of([](RankProgram& r, GroupId g, int peer) { r.then(r.send(g, 1 - peer), "self"); });
  expect_parts(error_of(programs), {"with itself"});
}

TEST(ValidateWorld, CollectivesOfOneGroupMustBeTheSame) {
  auto programs = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  EXPECT_EQ(error_of(programs), "");
  std::get<Collective>(programs[1].steps[0].op).kind = CollectiveKind::broadcast;
  expect_parts(error_of(programs), {"disagree", "all_reduce", "broadcast"});
  auto sizes = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  auto& smaller = std::get<Collective>(sizes[0].steps[0].op);
  smaller.in.cols = smaller.out.cols = 2;
  expect_parts(error_of(sizes), {"disagree", "2", "4"});
  auto types = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  for (Tensor& tensor : types[1].tensors) tensor.dtype = DType::bf16;
  expect_parts(error_of(types), {"f32", "bf16"});
}

TEST(ValidateWorld, ACollectiveThatOneRankLeavesOutIsUnmatched) {
  auto programs = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  programs[1].steps.clear();
  expect_parts(error_of(programs), {"unmatched", "all_reduce over pp {0, 1}", "rank 1 has ended"});
}

TEST(ValidateWorld, ShardsHaveTheCountOfTheirRank) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    RankProgram r;
    r.x.cols = rank == 0 ? 3 : 1;
    r.then(Collective{.kind = CollectiveKind::all_gather,
                      .group = r.group(0, 2, 1),
                      .in = r.x,
                      .out = r.y,
                      .counts = {3, 1}},
           "gather");
    programs.push_back(r.p);
  }
  EXPECT_EQ(error_of(programs), "");
  std::swap(programs[0], programs[1]);
  expect_parts(error_of(programs), {"'gather'", "its count is"});
}

TEST(ValidateWorld, WhatOneSendsTheOtherExpects) {
  const auto exchange = [](std::vector<Index> from_1) {
    std::vector<Program> programs;
    for (int rank = 0; rank < 2; ++rank) {
      RankProgram r;
      r.then(Collective{.kind = CollectiveKind::all_to_all_v,
                        .group = r.group(0, 2, 1),
                        .in = r.x,
                        .out = r.y,
                        .counts = rank == 0 ? std::vector<Index>{1, 3} : from_1,
                        .recv_counts =
                            rank == 0 ? std::vector<Index>{1, 3} : std::vector<Index>{3, 1}},
             "swap");
      programs.push_back(r.p);
    }
    return error_of(programs);
  };
  EXPECT_EQ(exchange({3, 1}), "");
  expect_parts(exchange({2, 2}), {"rank 1 sends 2 elements to rank 0, which expects 3"});
}

// Four ranks as 2 x 2: rows {0,1}, {2,3} and columns {0,2}, {1,3}.
std::vector<Program> grid(const std::function<bool(Rank)>& rows_first) {
  std::vector<Program> programs;
  for (Rank rank = 0; rank < 4; ++rank) {
    RankProgram r;
    const GroupId row = r.group(rank / 2 * 2, 2, 1, Dimension::tp),
                  column = r.group(rank % 2, 2, 2, Dimension::dp);
    r.then(r.reduce(rows_first(rank) ? row : column), "first");
    r.then(r.reduce(rows_first(rank) ? column : row), "second");
    programs.push_back(r.p);
  }
  return programs;
}

TEST(ValidateWorld, CollectivesOfTwoGroupsNeedOneOrder) {
  EXPECT_EQ(error_of(grid([](Rank) { return true; })), "");
  const std::string error = error_of(grid([](Rank rank) { return rank == 0 || rank == 3; }));
  expect_parts(
      error, {"deadlock", "rank 0 in step 0 'first' waits in all_reduce over tp {0, 1} for rank 1",
              "rank 1 in step 0 'first' waits in all_reduce over dp {1, 3} for rank 3"});
}

TEST(ValidateWorld, GroupsOfDifferentDimensionsAreDifferentCommunicators) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    RankProgram r;
    r.then(r.reduce(r.group(0, 2, 1, rank == 0 ? Dimension::tp : Dimension::dp)), "sum");
    programs.push_back(r.p);
  }
  expect_parts(error_of(programs), {"deadlock", "over tp", "over dp"});
}

TEST(ValidateWorld, StreamsAdvanceIndependentlyUntilAfterOrdersThem) {
  // Rank 1 sends from its compute stream before its comm stream can; with `after` the circle
  // closes.
  const auto world = [](bool ordered) {
    return pair_of([ordered](RankProgram& r, GroupId g, int peer) {
      const StepId give = r.then(r.send(g, peer), "give", StreamRole::comm);
      r.then(r.recv(g, peer), "take", StreamRole::compute,
             ordered ? std::vector<Dependency>{{.step = give}} : std::vector<Dependency>{});
    });
  };
  EXPECT_EQ(error_of(world(false)), "");
  expect_parts(error_of(world(true)), {"deadlock", "'give'"});
}

TEST(ValidateWorld, OneCommunicatorIsNotUsedByBothStreamsAtOnce) {
  const auto programs = pair_of([](RankProgram& r, GroupId g, int) {
    r.then(r.reduce(g), "one", StreamRole::compute);
    r.y = r.p.whole(add(r.p, "Y2", 1, 4));
    r.then(r.reduce(g), "two", StreamRole::comm);
  });
  expect_parts(error_of(programs), {"'two'", "while it is still in", "'one'"});
}

TEST(ValidateWorld, RanksOutsideTheGroupOrTheWorldAreRefused) {
  RankProgram outside;
  outside.then(outside.reduce(outside.group(1, 2, 1)), "sum");
  expect_parts(error_of({outside.p, outside.p, outside.p}), {"rank 0", "no member"});
  expect_parts(error_of(std::vector<Program>{outside.p}), {"the world has 1 ranks"});
}

TEST(ValidateWorld, ErrorsOfOneRankSayWhich) {
  auto programs = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  programs[1].steps[0].after = {{.step = 0}};
  expect_parts(error_of(programs), {"rank 1: step 0 'sum'"});
}

TEST(ValidateWorld, ThePrologueIsPlayedFirst) {
  auto programs = pair_of([](RankProgram& r, GroupId g, int) { r.then(r.reduce(g), "sum"); });
  programs[0].prologue = programs[0].steps;
  expect_parts(error_of(programs), {"rank 0 in prologue step 0"});
}

/// 1F1B of `m` micro-batches: warm-up forwards, then one forward and one backward in turn, then the
/// rest.
Program pipeline_stage(int stage, int stages, int m, bool together) {
  RankProgram r;
  const GroupId g = r.group(0, stages, 1);
  const bool first = stage == 0, last = stage + 1 == stages;
  const int warm_up = std::min(m, stages - stage - 1);
  for (int i = 0; i < warm_up; ++i) {
    if (!first) r.then(r.recv(g, stage - 1), "recv forward");
    r.then(r.send(g, stage + 1), "send forward");
  }
  if (!first && m > warm_up) r.then(r.recv(g, stage - 1), "recv forward");
  for (int i = warm_up; i < m; ++i) {
    if (!last && together) {
      r.then(PostedTogether{{r.send(g, stage + 1), r.recv(g, stage + 1)}},
             "forward out, backward in");
    } else if (!last) {
      r.then(r.send(g, stage + 1), "send forward");
      r.then(r.recv(g, stage + 1), "recv backward");
    }
    if (first) continue;
    if (i + 1 == m) {
      r.then(r.send(g, stage - 1), "send backward");
    } else if (together) {
      r.then(PostedTogether{{r.send(g, stage - 1), r.recv(g, stage - 1)}},
             "backward out, forward in");
    } else {
      r.then(r.send(g, stage - 1), "send backward");
      r.then(r.recv(g, stage - 1), "recv forward");
    }
  }
  for (int i = 0; i < warm_up; ++i) {
    if (!last) r.then(r.recv(g, stage + 1), "recv backward");
    if (!first) r.then(r.send(g, stage - 1), "send backward");
  }
  return r.p;
}

TEST(ValidateWorld, OneForwardOneBackwardPassesWhenPostedTogether) {
  for (int stages : {2, 3, 4}) {
    for (int m : {1, 2, 7}) {
      std::vector<Program> together, apart;
      for (int stage = 0; stage < stages; ++stage) {
        together.push_back(pipeline_stage(stage, stages, m, true));
        apart.push_back(pipeline_stage(stage, stages, m, false));
      }
      EXPECT_EQ(error_of(together), "") << stages << " stages, " << m << " micro-batches";
      // Sends that cross block each other as soon as a steady state exists between two stages.
      if (m >= stages) expect_parts(error_of(apart), {"deadlock"});
    }
  }
}

TEST(ValidateWorld, AThousandRanksAreChecked) {
  std::vector<Program> programs;
  for (Rank rank = 0; rank < 1024; ++rank) {
    RankProgram r;
    const GroupId row = r.group(rank / 32 * 32, 32, 1, Dimension::tp),
                  column = r.group(rank % 32, 32, 32, Dimension::dp);
    r.then(r.reduce(row), "row");
    r.then(r.reduce(column), "column");
    programs.push_back(r.p);
  }
  EXPECT_EQ(error_of(programs), "");
}

}  // namespace
}  // namespace weft
