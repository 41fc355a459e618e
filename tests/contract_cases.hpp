// The contract of every Communicator, one function per promise; each is called on every rank.
// Instantiated over threads in transports_contract.cpp and over processes in mpi_contract.cpp.
#pragma once

#include <numeric>

#include "contract_slow_peer.hpp"

namespace weft::contract {

/// Collectives of every kind and size, three times with other data: what the last run left must not
/// be seen.
inline void collectives(World& w, std::string_view algorithm, DType dtype) {
  Communicator& comm = w.session().communicator(world_group(w.size()));
  std::vector<Case> cases;
  for (const Index each : {0, 1, 7, 1000, 20011}) {
    for (Case& c : all_cases(w, each, dtype)) cases.push_back(std::move(c));
  }
  std::erase_if(cases, [&](const Case& c) { return !suits(algorithm, c.op.kind, w.size()); });
  for (Case& c : cases) c.id = comm.prepare(c.op);
  w.session().commit();
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (Case& c : cases) {
      w.fill(c.op.in, iteration);
      w.poison(c.op.out);
      w.run(comm, c.id);
      c.check(c, iteration);
      w.poison(c.op.in);  // the input may be overwritten as soon as run() has returned
    }
  }
}

inline void collectives(Bootstrap& b, std::string_view transport, std::string_view algorithm,
                        DType dtype) {
  World w(b, transport, algorithm, Bytes{8} << 20);
  collectives(w, algorithm, dtype);
}

/// Nobody reads what is not there yet, or overwrites what somebody still reads, however the ranks
/// differ in speed; with a message beside its flag and with one that is pulled or put.
inline void slow_peers(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  for (const Index each : {5, 30000}) {
    World w(b, transport, algorithm, Bytes{16} << 20);
    if (suits(algorithm, OperationKind::all_gather, w.size())) {
      EXPECT_EQ(slow_peer(w, w.session(), each), "") << "of " << each << " elements";
    }
    b.barrier();
  }
}

/// An i32 exchange: the small counts that precede run-time counts.
inline void integers(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  if (!suits(algorithm, OperationKind::all_to_all_v, b.size())) return;
  World w(b, transport, algorithm);
  Communicator& comm = w.session().communicator(world_group(w.size(), Dimension::ep));
  Case c = all_to_all_case(w, 5, DType::i32, true);
  c.id = comm.prepare(c.op);
  w.session().commit();
  for (int iteration = 0; iteration < 3; ++iteration) {
    w.fill(c.op.in, iteration);
    w.run(comm, c.id);
    c.check(c, iteration);
  }
}

/// All at once: two messages to the next rank, one of nothing to it, and one to the rank before.
inline void posted_together(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  const int n = w.size(), next = (w.rank() + 1) % n, previous = (w.rank() + n - 1) % n;
  if (n == 1) return;
  Communicator& comm = w.session().communicator(world_group(n, Dimension::pp));
  const BoundView a = w.take(1000, DType::f32), a2 = w.take(77, DType::f32),
                  back = w.take(3, DType::f32);
  const BoundView ra = w.take(1000, DType::f32), ra2 = w.take(77, DType::f32),
                  rback = w.take(3, DType::f32);
  Operation op{.kind = OperationKind::point_to_point, .label = "neighbours"};
  op.members = {{true, next, a},        {true, next, {}},      {true, next, a2},
                {true, previous, back}, {false, previous, ra}, {false, previous, {}},
                {false, previous, ra2}, {false, next, rback}};
  const OperationId id = comm.prepare(op);
  w.session().commit();
  for (int iteration = 0; iteration < 4; ++iteration) {
    w.fill(a, iteration);
    w.fill(a2, iteration + 1);
    w.fill(back, iteration + 2);
    for (const BoundView& out : {ra, ra2, rback}) w.poison(out);
    w.run(comm, id);
    const auto from = [&](Rank r, int round) {
      return [=](Index i) { return value(r, i, round); };
    };
    expect_elements(ra, 0, 1000, from(previous, iteration), "first message");
    expect_elements(ra2, 0, 77, from(previous, iteration + 1), "second message");
    expect_elements(rback, 0, 3, from(next, iteration + 2), "message from behind");
  }
}

/// A pipeline: everything goes down the ranks, micro-batch by micro-batch, in separate blocking
/// steps.
inline void pipeline(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  const int n = w.size(), me = w.rank(), batches = 5;
  Communicator& comm = w.session().communicator(world_group(n, Dimension::pp));
  std::vector<BoundView> slots;
  std::vector<OperationId> receives, sends;
  for (int m = 0; m < batches; ++m) {
    slots.push_back(w.take(501, DType::bf16));
    Operation op{.kind = OperationKind::point_to_point, .label = "activation"};
    op.members = {{false, me - 1, slots.back()}};
    receives.push_back(me > 0 ? comm.prepare(op) : -1);
    op.members = {{true, me + 1, slots.back()}};
    sends.push_back(me < n - 1 ? comm.prepare(op) : -1);
  }
  w.session().commit();
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (int m = 0; m < batches; ++m) {
      const auto i = static_cast<std::size_t>(m);
      if (me == 0) w.fill(slots[i], iteration + m, 3);
      if (me > 0) w.run(comm, receives[i]);
      if (me < n - 1) w.run(comm, sends[i]);
      expect_elements(
          slots[i], 0, 501, [&](Index e) { return value(3, e, iteration + m); }, "pipeline");
    }
  }
}

/// A token goes round: each rank hands on what it has received, in one operation.
inline void in_order(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  const int n = w.size(), next = (w.rank() + 1) % n, previous = (w.rank() + n - 1) % n;
  if (n == 1) return;
  Communicator& comm = w.session().communicator(world_group(n, Dimension::pp));
  std::vector<OperationId> ids;
  std::vector<BoundView> tokens, returned;
  for (const Index elements : {2, 20000}) {
    tokens.push_back(w.take(elements, DType::f32));
    returned.push_back(w.take(elements, DType::f32));
    Operation op{.kind = OperationKind::point_to_point, .in_order = true, .label = "token"};
    if (w.rank() == 0) {
      op.members = {{true, next, tokens.back()}, {false, previous, returned.back()}};
    } else {
      op.members = {{false, previous, tokens.back()}, {true, next, tokens.back()}};
    }
    ids.push_back(comm.prepare(op));
  }
  w.session().commit();
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool begins = w.rank() == 0;
      begins ? w.fill(tokens[i], iteration) : World::poison(tokens[i]);
      World::poison(returned[i]);
      w.run(comm, ids[i]);
      expect_elements(
          begins ? returned[i] : tokens[i], 0, tokens[i].elements(),
          [&](Index e) { return value(0, e, iteration); }, "token");
    }
  }
}

inline std::int32_t run_time_rows(int from, int to, int item, int iteration) {
  return (from * 3 + to + item * 2 + iteration) % 4;
}

/// Counts that change from run to run, zeros among them, two entries per peer.
inline void run_time_counts(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  const int n = w.size(), me = w.rank(), per_peer = 2;
  const Index row = 33;
  Communicator& comm = w.session().communicator(world_group(n, Dimension::ep));
  std::vector<std::int32_t> send(static_cast<std::size_t>(n * per_peer)), recv(send);
  const Index capacity = 6 * n * row;
  Operation op{.kind = OperationKind::all_to_all_v,
               .in = w.take(capacity, DType::bf16),
               .out = w.take(capacity, DType::bf16),
               .run_time = RunTimeCounts{send.data(), recv.data(), per_peer, row},
               .dtype = DType::bf16,
               .label = "dispatch"};
  const OperationId id = comm.prepare(op);
  w.session().commit();
  for (int iteration = 0; iteration < 5; ++iteration) {
    const auto rows = [&](int from, int to) {
      return run_time_rows(from, to, 0, iteration) + run_time_rows(from, to, 1, iteration);
    };
    for (std::size_t i = 0; i < send.size(); ++i) {
      const int peer = static_cast<int>(i) / per_peer, item = static_cast<int>(i) % per_peer;
      send[i] = run_time_rows(me, peer, item, iteration);
      recv[i] = run_time_rows(peer, me, item, iteration);
    }
    w.fill(op.in, iteration);
    w.poison(op.out);
    w.run(comm, id);
    Index at = 0;
    for (int p = 0; p < n; ++p) {
      Index first = 0;
      for (int q = 0; q < me; ++q) first += rows(p, q) * row;
      expect_elements(
          op.out, at, rows(p, me) * row, [&](Index i) { return value(p, first + i, iteration); },
          "rows");
      at += rows(p, me) * row;
    }
    expect_elements(
        op.out, at, capacity - at, [](Index) { return -77.0; }, "beyond the rows");
  }
}

/// More rows than the buffers hold: an error with the numbers, before anything is written.
inline void capacity(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  Communicator& comm = w.session().communicator(world_group(w.size(), Dimension::ep));
  const std::vector<std::int32_t> rows(static_cast<std::size_t>(w.size()), 9);
  const Operation op{.kind = OperationKind::all_to_all_v,
                     .in = w.take(40 * w.size(), DType::f32),
                     .out = w.take(32 * w.size(), DType::f32),
                     .run_time = RunTimeCounts{rows.data(), rows.data(), 1, 4},
                     .dtype = DType::f32,
                     .label = "dispatch"};
  const OperationId id = comm.prepare(op);
  w.session().commit();
  try {
    w.run(comm, id);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::failed);
    const std::string text = e.what();
    EXPECT_NE(text.find(std::to_string(9 * w.size()) + " rows to receive"), std::string::npos)
        << text;
    EXPECT_NE(text.find("capacity is " + std::to_string(8 * w.size()) + " rows"), std::string::npos)
        << text;
  }
  b.barrier();
}

/// Rows and columns of a grid 2 x n/2, and the world, in turns: no message of one is taken for one
/// of another.
inline void interleaved(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  if (w.size() % 2 != 0) return;
  const int half = w.size() / 2, me = w.rank();
  const Group row{Dimension::tp, {.base = me / half * half, .axes = {{half, 1}}}};
  const Group column{Dimension::dp, {.base = me % half, .axes = {{2, half}}}};
  std::vector<std::pair<Communicator*, OperationId>> operations;
  std::vector<Operation> specs;
  for (const Group& group : {row, column, world_group(w.size(), Dimension::pp)}) {
    Communicator& comm = w.session().communicator(group);
    EXPECT_EQ(&comm, &w.session().communicator(group));
    EXPECT_EQ(comm.size(), group.ranks.size());
    specs.push_back({.kind = OperationKind::all_reduce,
                     .in = w.take(300, DType::f32),
                     .out = w.take(300, DType::f32),
                     .dtype = DType::f32,
                     .label = "sum"});
    operations.emplace_back(&comm, comm.prepare(specs.back()));
  }
  w.session().commit();
  for (int iteration = 0; iteration < 6; ++iteration) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      w.fill(specs[i].in, iteration + static_cast<int>(i));
      w.run(*operations[i].first, operations[i].second);
      const auto expected = [&](Index e) {
        double sum = 0;
        for (const Rank r : operations[i].first->ranks())
          sum += value(r, e, iteration + static_cast<int>(i));
        return sum;
      };
      expect_elements(specs[i].out, 0, 300, expected, "sum over the group");
    }
  }
}

/// Operations of a second commit() work beside those of the first.
inline void second_commit(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  Communicator& comm = w.session().communicator(world_group(w.size()));
  Case first = all_reduce_case(w, 100, DType::f32),
       second = all_gather_case(w, 50, DType::f32, false);
  first.id = comm.prepare(first.op);
  w.session().commit();
  second.id = comm.prepare(second.op);
  w.session().commit();
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (Case* c : {&first, &second, &first}) {
      w.fill(c->op.in, iteration);
      w.run(comm, c->id);
      c->check(*c, iteration);
    }
  }
}

/// In place: this rank's block of a gather may already lie in the output; a root may broadcast its
/// output.
inline void in_place(Bootstrap& b, std::string_view transport, std::string_view algorithm) {
  World w(b, transport, algorithm);
  Communicator& comm = w.session().communicator(world_group(w.size()));
  Case gather = all_gather_case(w, 60, DType::f32, true),
       cast = broadcast_case(w, 70, DType::f32, 0);
  gather.op.in.data = gather.op.out.data + 60 * w.rank() * size_of(DType::f32);
  if (w.rank() == 0) cast.op.in = cast.op.out;
  gather.id = comm.prepare(gather.op);
  cast.id = comm.prepare(cast.op);
  w.session().commit();
  for (Case* c : {&gather, &cast}) {
    w.poison(c->op.out);
    w.fill(c->op.in, 4);
    w.run(comm, c->id);
    c->check(*c, 4);
  }
}

using Promise = void (*)(Bootstrap&, std::string_view transport, std::string_view algorithm);
struct NamedPromise {
  const char* name;
  Promise check;
};
inline constexpr NamedPromise kPromises[] = {
    {"integers", integers},       {"posted_together", posted_together}, {"in_order", in_order},
    {"pipeline", pipeline},       {"run_time_counts", run_time_counts}, {"capacity", capacity},
    {"interleaved", interleaved}, {"second_commit", second_commit},     {"in_place", in_place},
    {"slow_peers", slow_peers},
};

}  // namespace weft::contract
