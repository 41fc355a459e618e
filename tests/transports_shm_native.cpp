// The native forms of shm: which one runs, what it records, that all ranks see the same bits.
#include <cstring>
#include <random>
#include <set>

#include "contract_cases.hpp"
#include "transports/shm_flags.hpp"
#include "transports/shm_native.hpp"
#include "transports/shm_native_sizes.hpp"

namespace weft {
namespace {

using contract::run_ranks;
using contract::World;

/// A session of shm with settings of the test's choice.
World::Open shm_with(const ShmSettings& settings) {
  return [settings](Bootstrap& b, Arena& arena, const SessionOptions& options) {
    return make_scheduled_session(b, arena, make_shm_wire(b, arena, options, settings), options);
  };
}

constexpr Bytes kNever = 0, kAlways = Bytes{1} << 40;

ShmThresholds forms(Bytes beside_flag, Bytes whole) {
  ShmThresholds thresholds = kShmThresholds;
  thresholds.exchange_beside_flag = thresholds.sum_beside_flag = beside_flag;
  thresholds.sum_whole = whole;
  return thresholds;
}

/// Each form, whatever the thresholds say.
std::vector<ShmSettings> all_forms() {
  return {{.thresholds = forms(kAlways, kNever)},
          {.thresholds = forms(kNever, kAlways)},
          {.thresholds = forms(kNever, kNever)},
          {.thresholds = forms(kNever, kNever), .streaming = true}};
}

TEST(ShmNative, EveryFormKeepsTheContract) {
  for (const ShmSettings& settings : all_forms()) {
    for (const int n : {1, 2, 3, 5}) {
      run_ranks(n, [&](Bootstrap& b) {
        World w(b, shm_with(settings), "", Bytes{16} << 20);
        contract::collectives(w, kNativeAlgorithm, n == 3 ? DType::bf16 : DType::f32);
        b.barrier();
      });
    }
  }
}

std::vector<std::byte> bytes_of(const BoundView& view) {
  return {view.data, view.data + view.bytes()};
}

/// Sums whose rounding depends on the order of their terms, so that another order is seen.
std::vector<std::byte> sum_of_random(Bootstrap& b, const ShmSettings& settings, DType dtype) {
  World w(b, shm_with(settings), "", Bytes{4} << 20);
  contract::Case c = contract::all_reduce_case(w, 777, dtype);
  std::mt19937 random(static_cast<unsigned>(b.rank()));
  std::uniform_real_distribution<double> values(-1000, 1000);
  for (Index i = 0; i < 777; ++i) store_element(c.op.in.data, dtype, i, values(random));
  Communicator& comm = w.session().communicator(contract::world_group(w.size()));
  const OperationId id = comm.prepare(c.op);
  w.session().commit();
  w.run(comm, id);
  b.barrier();
  return bytes_of(c.op.out);
}

TEST(ShmNative, AllRanksAndFormsSeeTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::set<std::vector<std::byte>> seen;
    std::mutex mutex;
    for (const ShmSettings& settings : all_forms()) {
      run_ranks(5, [&](Bootstrap& b) {
        auto bytes = sum_of_random(b, settings, dtype);
        const std::lock_guard lock(mutex);
        seen.insert(std::move(bytes));
      });
    }
    EXPECT_EQ(seen.size(), 1u) << to_string(dtype);
  }
}

struct Expected {
  MessageKind kind;
  Rank source, destination;
  Bytes bytes;
};

/// What rank 0 of two records of one run, without times, which must be in order.
void expect_messages(Bootstrap& b, const ShmSettings& settings, const Operation& operation,
                     World& w, const std::vector<Expected>& expected) {
  Communicator& comm = w.session().communicator(contract::world_group(2));
  const OperationId id = comm.prepare(operation);
  w.session().commit();
  w.session().recorder().clear();
  w.run(comm, id);
  b.barrier();
  if (b.rank() != 0) return;
  const auto& messages = w.session().recorder().messages();
  ASSERT_EQ(messages.size(), expected.size()) << settings.thresholds.sum_beside_flag;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    EXPECT_EQ(m.kind, expected[i].kind) << i;
    EXPECT_EQ(std::pair(m.source, m.destination),
              std::pair(expected[i].source, expected[i].destination))
        << i;
    EXPECT_EQ(m.bytes, expected[i].bytes) << i;
    EXPECT_EQ(m.dim, Dimension::tp);
    EXPECT_GT(m.posted_us, 0);
    EXPECT_LE(m.posted_us, m.completed_us);
  }
}

constexpr auto kPayload = MessageKind::payload;
constexpr auto kControl = MessageKind::control;

TEST(ShmNative, PullsAreRecordedByTheReader) {
  run_ranks(2, [](Bootstrap& b) {
    const auto gather = [](World& w) {
      return contract::all_gather_case(w, 100, DType::f32, true).op;
    };
    const ShmSettings small{.thresholds = forms(kAlways, kNever)};
    World a(b, shm_with(small), "");
    expect_messages(b, small, gather(a), a, {{kControl, 1, 0, 8}, {kPayload, 1, 0, 400}});
    const ShmSettings direct{.thresholds = forms(kNever, kNever)};
    World d(b, shm_with(direct), "");
    expect_messages(b, direct, gather(d), d,
                    {{kControl, 1, 0, 8}, {kPayload, 1, 0, 400}, {kControl, 1, 0, 8}});
  });
}

TEST(ShmNative, SharesOfASumAreReadAndSpread) {
  run_ranks(2, [](Bootstrap& b) {
    const ShmSettings share{.thresholds = forms(kNever, kNever)};
    World w(b, shm_with(share), "");
    expect_messages(b, share, contract::all_reduce_case(w, 48, DType::f32).op, w,
                    {{kControl, 1, 0, 8},    // its ready flag
                     {kPayload, 1, 0, 128},  // two lines of three are this rank's share
                     {kPayload, 0, 1, 128},  // its sums
                     {kControl, 1, 0, 8}});  // its done flag
  });
}

TEST(ShmNative, SharesAreWholeLinesThatCoverAll) {
  for (const Index total : {0, 1, 16, 17, 100, 4096, 5001}) {
    for (const int n : {2, 3, 7}) {
      const ScheduleInput sizes{.kind = OperationKind::all_reduce, .size = n, .counts = {total}};
      Index next = 0;
      for (int m = 0; m < n; ++m) {
        const ShmBlock block = shm_sum_block(ShmForm::share, sizes, 4, m);
        EXPECT_EQ(block.first, next);
        EXPECT_TRUE(block.first % 16 == 0 || block.count == 0);
        next += block.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(ShmNative, ClosedFormOfAnAllReduceByShares) {
  const ScheduleInput sizes{.kind = OperationKind::all_reduce, .size = 4, .counts = {1 << 20}};
  const Index n = 1 << 20;
  // Three quarters of the input are read by others, a quarter of the sums goes to each.
  EXPECT_EQ(shm_native_traffic(sizes, 4, 1),
            (TrafficTotals{3 * n / 4 + 3 * n / 4, 3 * n / 4 + 3 * n / 4, 6, 0}));
  const ScheduleInput small{.kind = OperationKind::all_reduce, .size = 4, .counts = {2}};
  EXPECT_EQ(shm_native_traffic(small, 4, 1), (TrafficTotals{6, 6, 3, 0}));
}

TEST(ShmNative, MissingPeerIsNamed) {
  for (const Index each : {2, 100000}) {
    run_ranks(3, [&](Bootstrap& b) {
      World w(b, "shm", "native", Bytes{4} << 20, 0.3);
      Communicator& comm = w.session().communicator(contract::world_group(3));
      const OperationId id = comm.prepare(contract::all_gather_case(w, each, DType::f32, true).op);
      w.session().commit();
      std::string text;
      try {
        if (b.rank() != 2) w.run(comm, id);
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ExitCode::timed_out);
        text = e.what();
      }
      const std::string flag = each == 2 ? "data" : "the ready flag";
      if (b.rank() != 2) {
        EXPECT_NE(
            text.find("waited 0.3 s for " + flag + " of rank 2 on thread-host in all_gather " +
                      "'gather' of the tp group {0,1,2}"),
            std::string::npos)
            << text;
      }
      b.barrier();
    });
  }
}

TEST(ShmNative, FootprintCountsEachByteOnce) {
  Footprint footprint;
  footprint.add(-1, 0);
  EXPECT_EQ(footprint.total(), 0);
  footprint.add(100, 50);
  footprint.add(300, 50);
  EXPECT_EQ(footprint.total(), 100);
  footprint.add(120, 10);  // inside
  footprint.add(150, 10);  // behind
  EXPECT_EQ(footprint.total(), 110);
  footprint.add(90, 300);  // around all
  EXPECT_EQ(footprint.total(), 300);
}

std::string refusal(World& w, const std::vector<Operation>& operations) {
  Communicator& comm = w.session().communicator(contract::world_group(w.size()));
  for (const Operation& operation : operations) comm.prepare(operation);
  try {
    w.session().commit();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::usage);
    return e.what();
  }
  return {};
}

TEST(ShmBare, SumsAndGathersWhereItIsRecorded) {
  for (const std::string algorithm : {"memcpy", "stream"}) {
    run_ranks(2, [&](Bootstrap& b) {
      World w(b, "bare", algorithm, Bytes{4} << 20);
      Communicator& comm = w.session().communicator(contract::world_group(2));
      contract::Case c = contract::all_reduce_case(w, 10007, DType::f32);
      contract::Case again = contract::all_reduce_case(w, 10007, DType::f32);  // rotated buffers
      for (contract::Case* one : {&c, &again}) one->id = comm.prepare(one->op);
      w.session().commit();
      for (contract::Case* one : {&c, &again}) {
        w.fill(one->op.in, 3);
        w.run(comm, one->id);
        one->check(*one, 3);
      }
      w.session().recorder().enable(false);
      b.barrier();
      w.run(comm, c.id);
      b.barrier();
      c.check(c, 3);
    });
  }
}

TEST(ShmBare, RefusesWhatNeedsFlags) {
  run_ranks(2, [](Bootstrap& b) {
    const std::vector<std::int32_t> rows = {1, 1};
    World a(b, "bare", ""), c(b, "bare", "memcpy"), d(b, "bare", "stream");
    EXPECT_NE(refusal(a, {contract::all_reduce_case(a, 5, DType::f32).op,
                          contract::all_gather_case(a, 5, DType::f32, true).op})
                  .find("is a second one"),
              std::string::npos);
    EXPECT_NE(refusal(c, {{.kind = OperationKind::all_to_all_v,
                           .in = c.take(4, DType::f32),
                           .out = c.take(4, DType::f32),
                           .run_time = RunTimeCounts{rows.data(), rows.data(), 1, 1}}})
                  .find("counts known at run time only"),
              std::string::npos);
    EXPECT_NE(refusal(d, {{.kind = OperationKind::point_to_point,
                           .members = {{true, 1 - b.rank(), d.take(1, DType::f32)},
                                       {false, 1 - b.rank(), d.take(1, DType::f32)}}}})
                  .find("point-to-point"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace weft
