// What prepare(), commit() and run() refuse, with what words, and the timeout.
#include "contract_world.hpp"
#include "transports/scheduled_match.hpp"
#include "transports/transport.hpp"

namespace weft {
namespace {

using contract::run_ranks;
using contract::World;
using contract::world_group;

/// The message of the Error that fn throws; fails the test if it throws none.
std::string error_of(ExitCode code, const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Communicator, RefusesWhatDoesNotFit) {
  run_ranks(1, [](Bootstrap& b) {
    World w(b, "shm", "");
    Communicator& comm = w.session().communicator(world_group(1));
    const BoundView four = w.take(4, DType::f32), other = w.take(4, DType::f32),
                    five = w.take(5, DType::f32);
    const auto refused = [&](Operation op, const std::string& why) {
      expect_text(error_of(ExitCode::usage, [&] { comm.prepare(op); }), why);
    };
    refused({.kind = OperationKind::all_reduce, .in = four, .out = five},
            "`out` has 5 elements; the counts say 4");
    refused({.kind = OperationKind::all_reduce, .in = four, .out = four}, "share memory");
    refused({.kind = OperationKind::all_reduce, .in = four, .out = other, .dtype = DType::bf16},
            "`in` is f32");
    refused({.kind = OperationKind::all_gather, .in = four, .out = other, .counts = {2, 2}},
            "`counts` has 2 entries");
    refused({.kind = OperationKind::reduce_scatter, .in = four, .out = other, .counts = {-4}},
            "negative");
    refused({.kind = OperationKind::broadcast, .in = four, .out = other, .root = 1}, "no member 1");
    refused({.kind = OperationKind::point_to_point, .members = {{true, 0, four}}},
            "send to itself");
    refused({.kind = OperationKind::point_to_point, .members = {{true, 2, four}}}, "no member 2");
    BoundView strided = four;
    strided.rows = 2, strided.cols = 2, strided.ld = 3;
    refused({.kind = OperationKind::all_reduce, .in = strided, .out = other}, "not contiguous");
    std::array<std::byte, 16> outside{};
    refused({.kind = OperationKind::all_reduce,
             .in = {outside.data(), DType::f32, 1, 4, 4},
             .out = other},
            "outside the arena");
    const BoundView whole = w.take(4, DType::i32), sum = w.take(4, DType::i32);
    refused({.kind = OperationKind::all_reduce, .in = whole, .out = sum, .dtype = DType::i32},
            "not i32");
  });
}

TEST(Communicator, RunNeedsCommit) {
  run_ranks(1, [](Bootstrap& b) {
    World w(b, "shm", "");
    Communicator& comm = w.session().communicator(world_group(1));
    const OperationId id = comm.prepare({.kind = OperationKind::all_reduce,
                                         .in = w.take(4, DType::f32),
                                         .out = w.take(4, DType::f32),
                                         .label = "sum"});
    expect_text(error_of(ExitCode::usage, [&] { w.run(comm, id); }),
                "all_reduce 'sum' runs before commit()");
    expect_text(error_of(ExitCode::usage, [&] { w.run(comm, 7); }),
                "operation 7 was never prepared");
  });
}

/// Every rank prepares what `make` says, and every rank, also one outside the group, gets the same
/// error.
void expect_disagreement(int n, const std::function<void(World&)>& make, const std::string& why) {
  run_ranks(n, [&](Bootstrap& b) {
    World w(b, "shm", "");
    make(w);
    expect_text(error_of(ExitCode::usage, [&] { w.session().commit(); }), why);
  });
}

TEST(Communicator, MembersThatDisagreeAllFail) {
  const auto reduce = [](World& w, Index n) {
    return Operation{.kind = OperationKind::all_reduce,
                     .in = w.take(n, DType::f32),
                     .out = w.take(n, DType::f32),
                     .label = "grad " + std::to_string(w.rank())};
  };
  const auto first_two = [](World& w, const Operation& op) {
    if (w.rank() < 2) w.session().communicator(world_group(2)).prepare(op);
  };
  expect_disagreement(
      3, [&](World& w) { first_two(w, reduce(w, 4 + w.rank())); },
      "rank 0 ('grad 0') against rank 1 ('grad 1'): 4 against 5 elements");
  expect_disagreement(
      3,
      [&](World& w) {
        Operation op = reduce(w, 4);
        if (w.rank() == 1) op.kind = OperationKind::broadcast;
        first_two(w, op);
      },
      "all_reduce of f32 against broadcast of f32");
  expect_disagreement(
      3,
      [&](World& w) {
        if (w.rank() == 0) first_two(w, reduce(w, 4));
      },
      "rank 0 has prepared 1 collectives in the tp group {0,1}, rank 1 0");
  expect_disagreement(
      2,
      [](World& w) {
        Operation op{.kind = OperationKind::point_to_point, .label = "edge"};
        op.members = {{w.rank() == 0, 1 - w.rank(), w.take(3 + w.rank(), DType::f32)}};
        w.session().communicator(world_group(2, Dimension::pp)).prepare(op);
      },
      "message 0 from rank 0 to rank 1 in the pp group {0,1} is 12 bytes at its sender and 16");
  expect_disagreement(
      2,
      [](World& w) {
        Operation op{.kind = OperationKind::point_to_point, .label = "edge"};
        op.members = {{true, 1 - w.rank(), w.take(3, DType::f32)}};
        w.session().communicator(world_group(2, Dimension::pp)).prepare(op);
      },
      "rank 0 sends 1 messages to rank 1, which receives 0");
  expect_disagreement(
      2,
      [](World& w) {
        Operation op{.kind = OperationKind::all_to_all_v, .label = "tokens"};
        op.counts = w.rank() == 0 ? std::vector<Index>{0, 3} : std::vector<Index>{2, 0};
        op.recv_counts = w.rank() == 0 ? std::vector<Index>{0, 2} : std::vector<Index>{4, 0};
        op.in = w.take(w.rank() == 0 ? 3 : 2, DType::f32);
        op.out = w.take(w.rank() == 0 ? 2 : 4, DType::f32);
        w.session().communicator(world_group(2)).prepare(op);
      },
      "sends 3 elements against expects 4");
}

TEST(Communicator, AlgorithmWithoutTheOperationFailsOnAllRanks) {
  run_ranks(3, [](Bootstrap& b) {
    World w(b, "shm", "recursive");
    if (b.rank() < 2) {  // rank 2 is no member
      Operation op{.kind = OperationKind::all_to_all_v,
                   .counts = {1, 1},
                   .recv_counts = {1, 1},
                   .label = "tokens"};
      op.in = w.take(2, DType::f32);
      op.out = w.take(2, DType::f32);
      w.session().communicator(world_group(2)).prepare(op);
    }
    expect_text(error_of(ExitCode::usage, [&] { w.session().commit(); }),
                "algorithm 'recursive' cannot do all_to_all_v 'tokens' of the tp group {0,1}");
  });
}

TEST(Communicator, ScratchThatDoesNotFitFailsOnAllRanks) {
  run_ranks(3, [](Bootstrap& b) {
    World w(b, "shm", "one-shot", 1 << 16);
    Communicator& comm = w.session().communicator(world_group(3));
    comm.prepare({.kind = OperationKind::all_reduce,
                  .in = w.take(6000, DType::f32),
                  .out = w.take(6000, DType::f32)});
    const std::string text = error_of(ExitCode::usage, [&] { w.session().commit(); });
    expect_text(text, "algorithm 'one-shot' needs 48000 bytes of scratch, the arena of rank 0 has");
  });
}

TEST(Communicator, TimeoutNamesTheMissingPeer) {
  run_ranks(3, [](Bootstrap& b) {
    World w(b, "shm", "direct", 1 << 20, 0.3);
    Communicator& comm = w.session().communicator(world_group(3));
    const Operation op{.kind = OperationKind::all_gather,
                       .in = w.take(4, DType::f32),
                       .out = w.take(12, DType::f32),
                       .counts = {4, 4, 4},
                       .label = "gather Y"};
    const OperationId id = comm.prepare(op);
    w.session().commit();
    if (b.rank() != 2) {
      const std::string text = error_of(ExitCode::timed_out, [&] { w.run(comm, id); });
      expect_text(text, "rank " + std::to_string(b.rank()) + " on thread-host waited 0.3 s");
      expect_text(text,
                  "of rank 2 on thread-host in all_gather 'gather Y' of the tp group {0,1,2}");
      expect_text(text, "(round 1 of 1, step ");
    }
    b.barrier();
  });
}

TEST(Communicator, RunTimeCountsThatDisagreeNameBothNumbers) {
  run_ranks(2, [](Bootstrap& b) {
    World w(b, "shm", "", 1 << 20, 0.3);
    Communicator& comm = w.session().communicator(world_group(2, Dimension::ep));
    const std::vector<std::int32_t> send = {1, 1}, recv = {1, b.rank() == 1 ? 1 : 2};
    const std::vector<std::int32_t> expected =
        b.rank() == 1 ? std::vector<std::int32_t>{3, 1} : recv;
    const OperationId id =
        comm.prepare({.kind = OperationKind::all_to_all_v,
                      .in = w.take(40, DType::f32),
                      .out = w.take(40, DType::f32),
                      .run_time = RunTimeCounts{send.data(), expected.data(), 1, 8},
                      .label = "dispatch"});
    w.session().commit();
    const std::string text = error_of(ExitCode::failed, [&] { w.run(comm, id); });
    const std::string me = std::to_string(b.rank()), other = std::to_string(1 - b.rank());
    // The reader finds it out: what the sender has lies beside its ready flag.
    expect_text(text, "rank " + other + " has 1 rows for rank " + me + ", which expects " +
                          (b.rank() == 0 ? "2" : "3"));
    b.barrier();
  });
}

TEST(Communicator, UnknownNamesListTheKnown) {
  expect_text(error_of(ExitCode::usage, [] { find_transport("smoke"); }),
              "no transport 'smoke'; known: mpi, shm");
  run_ranks(2, [](Bootstrap& b) {
    Arena arena(MemorySpace::host, 4096);
    expect_text(error_of(ExitCode::usage,
                         [&] { find_transport("shm").open(b, arena, {.algorithm = "warp"}); }),
                "direct");
    expect_text(find_transport("mpi").unavailable(b), "threads of one process");
  });
}

TEST(Communicator, MpiRefusesOtherAlgorithms) {
  run_ranks(1, [](Bootstrap& b) {
    Arena arena(MemorySpace::host, 4096);
    expect_text(error_of(ExitCode::usage, [&] { find_transport("mpi").open(b, arena, {}); }),
                "'mpi' is not available here");
  });
}

TEST(Communicator, GroupsThatShareARankHaveDifferentIds) {
  std::vector<RankRecord> records(4);
  const auto join = [&](Dimension dim, std::vector<Rank> ranks) {
    for (const Rank r : ranks) {
      records[static_cast<std::size_t>(r)].comms.push_back(
          {.dim = dim, .ranks = ranks, .control = 0, .operations = {}});
    }
  };
  join(Dimension::tp, {0, 1});
  join(Dimension::tp, {2, 3});
  join(Dimension::dp, {0, 2});
  join(Dimension::dp, {1, 3});
  join(Dimension::ep, {0});
  std::map<CommKey, CommId> ids;
  assign_ids(match_groups(records), 2, ids);
  EXPECT_EQ(ids.at({Dimension::tp, {0, 1}}), ids.at({Dimension::tp, {2, 3}}));
  EXPECT_NE(ids.at({Dimension::tp, {0, 1}}), ids.at({Dimension::dp, {0, 2}}));
  join(Dimension::pp, {0, 1, 2, 3});
  expect_text(error_of(ExitCode::usage, [&] { assign_ids(match_groups(records), 2, ids); }),
              "this transport has 2");
}

}  // namespace
}  // namespace weft
