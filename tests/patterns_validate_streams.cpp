// Races between the streams of one rank.
#include "patterns_validate.hpp"

namespace weft {
namespace {

/// compute: Y = X; comm: Z = copy of Y; compute: overwrites Y. Each is right only with its `after`.
struct Overlap {
  Program p;
  View x, y, z;

  Overlap() {
    x = p.whole(add(p, "X", 2, 4));
    y = p.whole(add(p, "Y", 2, 4));
    z = p.whole(add(p, "Z", 2, 4));
  }
  static Step copy(View from, View to, StreamRole stream, std::vector<Dependency> after,
                   const std::string& label) {
    return {.op = Compute{.kind = ComputeKind::copy, .in = {from}, .out = {to}},
            .stream = stream,
            .after = std::move(after),
            .label = label};
  }
  void then(View from, View to, StreamRole stream, std::vector<Dependency> after,
            const std::string& label) {
    p.then(copy(from, to, stream, std::move(after), label));
  }
  std::string error() const {
    return message_of([this] {
      validate(p);
      validate_streams(p);
    });
  }
};

TEST(ValidateStreams, AReadMustWaitForTheWriteOfTheOtherStream) {
  Overlap o;
  o.then(o.x, o.y, StreamRole::compute, {}, "make");
  o.then(o.y, o.z, StreamRole::comm, {}, "use");
  expect_parts(o.error(), {"step 1 'use' on comm reads Y",
                           "step 0 'make' on compute may still write Y", "`after`"});
  o.p.steps[1].after = {{.step = 0}};
  EXPECT_EQ(o.error(), "");
}

TEST(ValidateStreams, AWriteMustWaitForTheReadOfTheOtherStream) {
  Overlap o;
  o.then(o.x, o.y, StreamRole::compute, {}, "make");
  o.then(o.y, o.z, StreamRole::comm, {{.step = 0}}, "use");
  o.then(o.x, o.y, StreamRole::compute, {}, "make again");
  expect_parts(o.error(), {"'make again' on compute writes Y", "'use' on comm may still read Y"});
  o.p.steps[2].after = {{.step = 1}};
  EXPECT_EQ(o.error(), "");
}

TEST(ValidateStreams, WaitingForALaterStepOfTheStreamIsEnough) {
  Overlap o;
  o.then(o.y, o.z, StreamRole::comm, {}, "use");
  o.then(o.x, o.p.whole(add(o.p, "V", 2, 4)), StreamRole::comm, {}, "other");
  o.then(o.x, o.p.whole(add(o.p, "U", 2, 4)), StreamRole::compute, {{.step = 1}}, "waits");
  o.then(o.x, o.y, StreamRole::compute, {}, "make");
  EXPECT_EQ(o.error(), "");
}

TEST(ValidateStreams, ReadsTogetherAndRowsApartAreFine) {
  Overlap o;
  const Tensor y = o.p.tensors[static_cast<std::size_t>(o.y.tensor)];
  const View top = rows_of(y, o.y.tensor, 0, 1), bottom = rows_of(y, o.y.tensor, 1, 1);
  const View first_x = rows_of(y, o.x.tensor, 0, 1), last_x = rows_of(y, o.x.tensor, 1, 1);
  o.then(first_x, top, StreamRole::compute, {}, "top");
  o.then(last_x, bottom, StreamRole::comm, {}, "bottom");
  o.then(o.x, o.z, StreamRole::comm, {}, "read too");
  EXPECT_EQ(o.error(), "");
}

// Double buffering: round i may overwrite what round i-2 sent, if it waits for that round.
TEST(ValidateStreams, SlotsThatComeRoundAgainNeedTheEarlierRound) {
  const auto rounds = [](int distance) {
    Overlap o;
    o.p.tensors[static_cast<std::size_t>(o.y.tensor)].slots = 2;
    View y = o.y;
    y.slot_per = {1, 0};
    Repeat repeat{.count = 5, .body = {}};
    repeat.body.push_back(
        Overlap::copy(o.x, y, StreamRole::compute, {{.step = 1, .distance = distance}}, "make"));
    repeat.body.push_back(Overlap::copy(y, o.z, StreamRole::comm, {{.step = 0}}, "send"));
    o.p.then(Step{.op = repeat});
    return o.error();
  };
  EXPECT_EQ(rounds(1), "");
  EXPECT_EQ(rounds(2), "");
  expect_parts(rounds(3),
               {"'make' on compute (round 2.0) writes Y[0]", "'send' on comm may still read Y[0]"});
}

TEST(ValidateStreams, MessagesAndRunTimeCountsAreAccesses) {
  Overlap o;
  const GroupId g = o.p.add(Group{.dim = Dimension::pp, .ranks = {.base = 0, .axes = {{2, 1}}}});
  o.p.then(Step{.op = PostedTogether{{{.send = true, .group = g, .peer = 1, .data = o.x},
                                      {.send = false, .group = g, .peer = 1, .data = o.y}}},
                .stream = StreamRole::comm,
                .label = "cross"});
  o.then(o.y, o.z, StreamRole::compute, {}, "use");
  expect_parts(o.error(), {"'use' on compute reads Y", "'cross' on comm may still write Y"});
  o.p.steps[1].after = {{.step = 0}};
  EXPECT_EQ(o.error(), "");
}

}  // namespace
}  // namespace weft
