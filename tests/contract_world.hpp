// What the contract of every Communicator is tested with: one rank's arena and session, data whose
// sums are exact in every dtype, and the expected results by definition of each operation.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "patterns/error.hpp"
#include "transports/communicator.hpp"
#include "transports/schedule.hpp"

namespace weft::contract {

/// Runs fn(bootstrap) on n threads; an exception of one is a failure of the test.
inline void run_ranks(int n, const std::function<void(Bootstrap&)>& fn, int ranks_per_host = 0) {
  auto bootstraps = make_thread_bootstraps(n, ranks_per_host);
  std::vector<std::thread> threads;
  for (auto& bootstrap : bootstraps) {
    threads.emplace_back([&fn, &b = *bootstrap] {
      try {
        fn(b);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << b.rank() << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// 0..4, so that sums over 16 ranks are exact in bf16 (8 bits).
inline double value(Rank rank, Index i, int iteration) {
  return static_cast<double>((rank * 7 + i * 3 + i / 5 + iteration * 2) % 5);
}

inline Group world_group(int n, Dimension dim = Dimension::tp) {
  return {.dim = dim, .ranks = {.base = 0, .axes = {{.count = n, .stride = 1}}}};
}

/// One rank over one transport.
class World {
 public:
  using Open = std::function<std::unique_ptr<Session>(Bootstrap&, Arena&, const SessionOptions&)>;

  World(Bootstrap& bootstrap, std::string_view transport, std::string_view algorithm,
        Bytes arena_bytes = Bytes{1} << 20, double timeout = 20)
      : World(bootstrap, find_transport(transport).open, algorithm, arena_bytes, timeout) {}
  /// Over a session that no entry of the registry makes.
  World(Bootstrap& bootstrap, const Open& open, std::string_view algorithm,
        Bytes arena_bytes = Bytes{1} << 20, double timeout = 20)
      : bootstrap_(bootstrap),
        arena_(MemorySpace::host, arena_bytes),
        stream_(make_stream(StreamKind::inline_)),
        session_(open(bootstrap, arena_, session_options(bootstrap, algorithm, timeout))) {}

  BoundView take(Index elements, DType dtype) {
    if (elements == 0) return {.data = nullptr, .dtype = dtype, .rows = 0, .cols = 0, .ld = 0};
    return {.data = arena_.take(elements * size_of(dtype)).data(),
            .dtype = dtype,
            .rows = 1,
            .cols = elements,
            .ld = elements};
  }
  void fill(const BoundView& view, int iteration, Rank as) const {
    for (Index i = 0; i < view.elements(); ++i)
      store_element(view.data, view.dtype, i, value(as, i, iteration));
  }
  void fill(const BoundView& view, int iteration) const { fill(view, iteration, rank()); }
  static void poison(const BoundView& view) {
    for (Index i = 0; i < view.elements(); ++i) store_element(view.data, view.dtype, i, -77);
  }
  void run(Communicator& comm, OperationId id) { comm.run(id, *stream_); }

  Rank rank() const { return bootstrap_.rank(); }
  int size() const { return bootstrap_.size(); }
  Bootstrap& bootstrap() { return bootstrap_; }
  Arena& arena() { return arena_; }
  Session& session() { return *session_; }

 private:
  static SessionOptions session_options(const Bootstrap& bootstrap, std::string_view algorithm,
                                        double timeout) {
    SessionOptions options;
    options.algorithm = algorithm;
    options.timeout = std::chrono::duration<double>(timeout);
    options.oversubscribed =
        bootstrap.size() > static_cast<int>(std::thread::hardware_concurrency());
    return options;
  }

  Bootstrap& bootstrap_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Session> session_;
};

/// Elements first .. first+n of `view` against expected(i), i from 0; reports the first difference
/// only.
inline void expect_elements(const BoundView& view, Index first, Index n,
                            const std::function<double(Index)>& expected, const std::string& what) {
  for (Index i = 0; i < n; ++i) {
    const double actual = load_element(view.data, view.dtype, first + i);
    if (actual == expected(i)) continue;
    ADD_FAILURE() << what << ": element " << first + i << " is " << actual << ", expected "
                  << expected(i);
    return;
  }
}

/// Counts of the members: even, or uneven with a zero and a large one.
inline std::vector<Index> counts_of(int n, Index each, bool even) {
  std::vector<Index> counts(static_cast<std::size_t>(n), each);
  for (int i = 0; i < n && !even; ++i)
    counts[static_cast<std::size_t>(i)] = i == 0 ? 0 : each + 3 * i;
  return counts;
}
inline Index total(const std::vector<Index>& counts) {
  Index sum = 0;
  for (const Index c : counts) sum += c;
  return sum;
}
inline Index before(const std::vector<Index>& counts, int member) {
  return total({counts.begin(), counts.begin() + member});
}

/// Elements that `from` sends to `to` in the test's all_to_all_v.
inline Index pair_count(int from, int to, Index each, bool even) {
  return even ? each : (from * 5 + to * 3) % 4 == 0 ? 0 : each + from + 2 * to;
}

/// One prepared operation with its buffers, and how its result looks by definition.
struct Case {
  Operation op;
  OperationId id = -1;
  bool even = true;  // counts
  std::function<void(const Case&, int iteration)> check;
};

inline std::function<double(Index)> sum_of(int n, Index first, int iteration) {
  return [=](Index i) {
    double sum = 0;
    for (int r = 0; r < n; ++r) sum += value(r, first + i, iteration);
    return sum;
  };
}

inline Case all_gather_case(World& w, Index each, DType dtype, bool even) {
  const auto counts = counts_of(w.size(), each, even);
  Case c{.op = {}, .even = even, .check = {}};
  c.op = {.kind = OperationKind::all_gather,
          .in = w.take(counts[static_cast<std::size_t>(w.rank())], dtype),
          .out = w.take(total(counts), dtype),
          .counts = counts,
          .dtype = dtype,
          .label = "gather"};
  c.check = [counts](const Case& me, int iteration) {
    for (int r = 0; r < static_cast<int>(counts.size()); ++r) {
      expect_elements(
          me.op.out, before(counts, r), counts[static_cast<std::size_t>(r)],
          [&](Index i) { return value(r, i, iteration); }, "all_gather");
    }
  };
  return c;
}

inline Case all_reduce_case(World& w, Index each, DType dtype) {
  Case c;
  c.op = {.kind = OperationKind::all_reduce,
          .in = w.take(each, dtype),
          .out = w.take(each, dtype),
          .dtype = dtype,
          .label = "reduce"};
  c.check = [n = w.size()](const Case& me, int iteration) {
    expect_elements(me.op.out, 0, me.op.out.elements(), sum_of(n, 0, iteration), "all_reduce");
  };
  return c;
}

inline Case reduce_scatter_case(World& w, Index each, DType dtype, bool even) {
  const auto counts = counts_of(w.size(), each, even);
  Case c{.op = {}, .even = even, .check = {}};
  c.op = {.kind = OperationKind::reduce_scatter,
          .in = w.take(total(counts), dtype),
          .out = w.take(counts[static_cast<std::size_t>(w.rank())], dtype),
          .counts = counts,
          .dtype = dtype,
          .label = "scatter"};
  c.check = [n = w.size(), first = before(counts, w.rank())](const Case& me, int iteration) {
    expect_elements(me.op.out, 0, me.op.out.elements(), sum_of(n, first, iteration),
                    "reduce_scatter");
  };
  return c;
}

inline Case broadcast_case(World& w, Index each, DType dtype, int root) {
  Case c;
  c.op = {.kind = OperationKind::broadcast,
          .in = w.rank() == root ? w.take(each, dtype) : BoundView{},
          .out = w.take(each, dtype),
          .root = root,
          .dtype = dtype,
          .label = "broadcast"};
  c.check = [root](const Case& me, int iteration) {
    expect_elements(
        me.op.out, 0, me.op.out.elements(), [&](Index i) { return value(root, i, iteration); },
        "broadcast");
  };
  return c;
}

inline Case all_to_all_case(World& w, Index each, DType dtype, bool even) {
  const int n = w.size(), me = w.rank();
  std::vector<Index> send, recv;
  for (int p = 0; p < n; ++p) send.push_back(pair_count(me, p, each, even));
  for (int p = 0; p < n; ++p) recv.push_back(pair_count(p, me, each, even));
  Case c{.op = {}, .even = even, .check = {}};
  c.op = {.kind = OperationKind::all_to_all_v,
          .in = w.take(total(send), dtype),
          .out = w.take(total(recv), dtype),
          .counts = send,
          .recv_counts = recv,
          .dtype = dtype,
          .label = "exchange"};
  c.check = [=](const Case& self, int iteration) {
    for (int p = 0; p < n; ++p) {
      Index first = 0;  // of my block in p's buffer
      for (int q = 0; q < me; ++q) first += pair_count(p, q, each, even);
      expect_elements(
          self.op.out, before(recv, p), recv[static_cast<std::size_t>(p)],
          [&](Index i) { return value(p, first + i, iteration); }, "all_to_all_v");
    }
  };
  return c;
}

/// Whether an algorithm has a schedule for this kind of operation; MPI has all.
inline bool suits(std::string_view algorithm, OperationKind kind, int n) {
  for (const Algorithm& a : algorithms()) {
    if (a.name == algorithm)
      return a.unsuitable({.kind = kind, .size = n, .counts = {}, .matrix = {}, .hosts = {}})
          .empty();
  }
  return true;
}

/// Every collective, with even and uneven counts, for one size.
inline std::vector<Case> all_cases(World& w, Index each, DType dtype) {
  std::vector<Case> cases;
  for (const bool even : {true, false}) {
    cases.push_back(all_gather_case(w, each, dtype, even));
    cases.push_back(reduce_scatter_case(w, each, dtype, even));
    cases.push_back(all_to_all_case(w, each, dtype, even));
  }
  cases.push_back(all_reduce_case(w, each, dtype));
  cases.push_back(broadcast_case(w, each, dtype, 0));
  cases.push_back(broadcast_case(w, each, dtype, w.size() - 1));
  return cases;
}

}  // namespace weft::contract
