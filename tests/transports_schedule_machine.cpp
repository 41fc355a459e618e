// The machine that judges the schedules: it must see each kind of fault.
#include <gtest/gtest.h>

#include "tests/schedule_machine.hpp"

namespace weft {
namespace {

/// Rounds written down by hand.
class FixedSchedule : public Schedule {
 public:
  FixedSchedule(std::vector<Round> list, Index scratch)
      : list_(std::move(list)), scratch_(scratch) {}
  int rounds() const override { return static_cast<int>(list_.size()); }
  Round round(int r) const override { return list_[static_cast<std::size_t>(r)]; }
  Index scratch_elements() const override { return scratch_; }

 private:
  std::vector<Round> list_;
  Index scratch_;
};

void play(std::vector<Round> first, std::vector<Round> second) {
  std::vector<std::unique_ptr<Schedule>> schedules;
  schedules.push_back(std::make_unique<FixedSchedule>(std::move(first), 2));
  schedules.push_back(std::make_unique<FixedSchedule>(std::move(second), 2));
  ScheduleMachine(
      std::move(schedules), {2, 2}, {2, 2}, [](int, Index i) { return i; }, 1)
      .play();
}

const Place kIn{BufferRole::in, 0}, kOut{BufferRole::out, 0}, kScratch{BufferRole::scratch, 0};

TEST(ScheduleMachine, FindsWhatIsWrong) {
  const Round send{.sends = {{1, kIn, kOut, 2}}};
  const Round receive{.receives = {{0, 1, 2}}};
  EXPECT_NO_THROW(play({send}, {receive}));
  EXPECT_THROW(play({send}, {{}}), ScheduleFault);     // never waited for
  EXPECT_THROW(play({{}}, {receive}), ScheduleFault);  // deadlock
  EXPECT_THROW(play({send, send}, {receive, receive}),
               ScheduleFault);                                   // two writes that nothing orders
  EXPECT_NO_THROW(play({send, {}}, {{}, receive}));              // received later
  EXPECT_THROW(play({{}, send}, {receive, {}}), ScheduleFault);  // received too early
  EXPECT_THROW(play({{.sends = {{1, kScratch, kOut, 2}}}}, {receive}),
               ScheduleFault);  // nobody wrote it
  EXPECT_THROW(play({{.sends = {{1, kIn, kOut, 3}}}}, {receive}), ScheduleFault);  // outside
  EXPECT_THROW(play({{.sends = {{1, kIn, kIn, 2}}}}, {receive}), ScheduleFault);   // an input
}

TEST(ScheduleMachine, FindsASourceOverwrittenTooEarly) {
  const LocalStep copy{LocalStep::Kind::copy, kIn, kScratch, 2};
  const Round send{.before = {copy}, .sends = {{1, kScratch, kOut, 2}}, .after = {copy}};
  EXPECT_THROW(play({send}, {{.receives = {{0, 1, 2}}}}), ScheduleFault);
}

TEST(ScheduleMachine, FindsASourceMadeTooLate) {
  const LocalStep copy{LocalStep::Kind::copy, kIn, kScratch, 2};
  const Round receive{.receives = {{0, 1, 2}}};
  const std::vector<Transfer> sends{{1, kScratch, kOut, 2}};
  EXPECT_NO_THROW(play({{.before = {copy}, .sends = sends}}, {receive}));
  EXPECT_THROW(play({{.sends = sends, .meanwhile = {copy}}}, {receive}), ScheduleFault);
  EXPECT_THROW(play({{.before = {copy}, .sends = sends, .meanwhile = {copy}}}, {receive}),
               ScheduleFault);  // overwritten while it is read
  const Round other{.sends = {{1, kIn, kOut, 2}}, .meanwhile = {copy}};
  EXPECT_NO_THROW(play({other}, {receive}));
}

TEST(ScheduleMachine, FindsAReadThatMayComeTooEarly) {
  const LocalStep copy{LocalStep::Kind::copy, kOut, kScratch, 2};
  const Round early{.before = {copy}, .receives = {{0, 1, 2}}};
  EXPECT_THROW(play({{.sends = {{1, kIn, kOut, 2}}}}, {early}), ScheduleFault);
}

}  // namespace
}  // namespace weft
