// Every byte of every exchange, exactly. What each rank must find follows from the patterns that
// all ranks filled in; the expectation never looks at how the data travelled.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>

#include "bench/verify.hpp"
#include "kernels/generator.hpp"

namespace weft {
namespace {

constexpr Index kChunk = 1024;

// One output block and the value each of its elements must have.
struct Expectation {
  std::byte* data = nullptr;
  Index elements = 0;
  DType dtype = DType::f32;
  Rank from = -1;           // one source, or -1: the sum over all
  Index source_offset = 0;  // element of the source's pattern that comes first
  std::uint64_t key = 0;    // tells steps apart
};

class ExchangeCheck {
 public:
  ExchangeCheck(Execution& execution, Bootstrap& bootstrap, const Injection& injection)
      : execution_(execution), bootstrap_(bootstrap), injection_(injection) {}

  Verdict run() {
    gather_run_time_counts();
    for (const BoundCommunication& step : execution_.communications()) check(step);
    return verdict_;
  }

 private:
  // Run-time counts may lie in the very buffers of an earlier step, so each step's buffers get
  // their contents back.
  void check(const BoundCommunication& step) {
    expectations_.clear();
    const std::vector<Saved> contents = save(step.operation);
    if (step.operation.kind == OperationKind::point_to_point) {
      prepare_point_to_point(step);
    } else {
      prepare_collective(step);
    }
    execution_.run_communication(step);
    bool first = true;
    for (const Expectation& expected : expectations_) {
      if (first && expected.elements > 0) {
        injection_.apply("exchange", bootstrap_.rank(), expected.data, expected.elements,
                         expected.dtype);
        first = false;
      }
      compare(step, expected);
    }
    for (const Saved& saved : contents)
      std::copy(saved.bytes.begin(), saved.bytes.end(), saved.data);
  }

  struct Saved {
    std::byte* data;
    std::vector<std::byte> bytes;
  };

  static std::vector<Saved> save(const Operation& op) {
    std::vector<BoundView> views{op.in, op.out};
    for (const PointToPoint& member : op.members) views.push_back(member.data);
    std::vector<Saved> saved;
    for (const BoundView& view : views) {
      if (view.data && view.dtype == DType::i32)
        saved.push_back({view.data, {view.data, view.data + view.bytes()}});
    }
    return saved;
  }

  // The k-th message of an ordered pair in one iteration has the same key on both sides (P2P is
  // FIFO per pair).
  void prepare_point_to_point(const BoundCommunication& step) {
    for (const PointToPoint& member : step.operation.members) {
      const Rank peer = step.comm->ranks()[static_cast<std::size_t>(member.peer)];
      const Rank me = bootstrap_.rank();
      const auto pair = member.send ? std::pair(me, peer) : std::pair(peer, me);
      const std::uint64_t key = 1'000'000 + pair_count_[{pair, member.send}]++;
      const BoundView& view = member.data;
      if (member.send) {
        fill_pattern(view.data, view.elements(), view.dtype, me, key);
      } else {
        poison(view.data, view.elements(), view.dtype);
        expectations_.push_back({view.data, view.elements(), view.dtype, peer, 0, key});
      }
    }
  }

  void prepare_collective(const BoundCommunication& step) {
    const Operation& op = step.operation;
    key_ = ++group_count_[step.comm];  // members count the steps of their group alike
    poison(op.out.data, op.out.elements(), op.dtype);
    fill_pattern(op.in.data, op.in.elements(), op.dtype, bootstrap_.rank(), key_,
                 step.comm->size());
    switch (op.kind) {
      case OperationKind::all_gather:
        return expect_gather(step);
      case OperationKind::all_reduce:
        return expect(op.out, 0, op.out.elements(), -1, 0);
      case OperationKind::reduce_scatter:
        return expect_scattered(step);
      case OperationKind::broadcast:
        return expect(op.out, 0, op.out.elements(), rank_of(step, op.root), 0);
      case OperationKind::all_to_all_v:
        return expect_all_to_all(step);
      case OperationKind::point_to_point:
        return;
    }
  }

  static Rank rank_of(const BoundCommunication& step, int index) {
    return step.comm->ranks()[static_cast<std::size_t>(index)];
  }

  void expect(const BoundView& out, Index offset, Index elements, Rank from, Index source_offset) {
    expectations_.push_back(
        {out.data + offset * size_of(out.dtype), elements, out.dtype, from, source_offset, key_});
  }

  void expect_gather(const BoundCommunication& step) {
    Index offset = 0;
    for (int i = 0; i < step.comm->size(); ++i) {
      const Index count = step.operation.counts[static_cast<std::size_t>(i)];
      expect(step.operation.out, offset, count, rank_of(step, i), 0);
      offset += count;
    }
  }

  void expect_scattered(const BoundCommunication& step) {
    const auto& counts = step.operation.counts;
    const auto mine = counts.begin() + step.comm->rank();
    expect(step.operation.out, 0, *mine, -1, std::accumulate(counts.begin(), mine, Index{0}));
  }

  void expect_all_to_all(const BoundCommunication& step) {
    const auto& sends = all_send_counts_.at(&step);
    const int me = step.comm->rank();
    Index offset = 0;
    for (int i = 0; i < step.comm->size(); ++i) {
      const auto& row = sends[static_cast<std::size_t>(rank_of(step, i))];
      const Index before = std::accumulate(row.begin(), row.begin() + me, Index{0});
      const Index count = row[static_cast<std::size_t>(me)];
      expect(step.operation.out, offset, count, rank_of(step, i), before);
      offset += count;
    }
  }

  // What every rank sends to each member in each all_to_all_v: [step][global rank][member]. Over
  // the bootstrap, not the wire under test. Ranks of different groups must take part alike, so
  // steps are matched by their index among a rank's own.
  void gather_run_time_counts() {
    std::vector<const BoundCommunication*> steps;
    for (const BoundCommunication& step : execution_.communications()) {
      if (step.operation.kind == OperationKind::all_to_all_v) steps.push_back(&step);
    }
    const auto most = static_cast<std::size_t>(bootstrap_.max(static_cast<double>(steps.size())));
    for (std::size_t k = 0; k < most; ++k) {
      const std::vector<Index> mine =
          k < steps.size() ? send_counts(*steps[k]) : std::vector<Index>{};
      std::vector<std::vector<Index>> all;
      for (const auto& bytes : bootstrap_.all_gather(std::as_bytes(std::span(mine)))) {
        auto& row = all.emplace_back(bytes.size() / sizeof(Index));
        std::copy_n(reinterpret_cast<const Index*>(bytes.data()), row.size(), row.begin());
      }
      if (k < steps.size()) all_send_counts_[steps[k]] = std::move(all);
    }
  }

  static std::vector<Index> send_counts(const BoundCommunication& step) {
    const Operation& op = step.operation;
    if (!op.run_time) return op.counts;
    std::vector<Index> counts;
    for (int peer = 0; peer < step.comm->size(); ++peer) {
      const std::int32_t* entries = op.run_time->send + peer * op.run_time->per_peer;
      counts.push_back(std::accumulate(entries, entries + op.run_time->per_peer, Index{0}) *
                       op.run_time->row_elements);
    }
    return counts;
  }

  // Chunk by chunk; a chunk that differs is searched for the element.
  void compare(const BoundCommunication& step, const Expectation& expected) {
    verdict_.exchanged += expected.elements;
    const Bytes size = size_of(expected.dtype);
    std::array<std::byte, 4 * kChunk> want;
    for (Index first = 0; first < expected.elements && verdict_.passed; first += kChunk) {
      const Index n = std::min(kChunk, expected.elements - first);
      expect_chunk(step, expected, first, n, want.data());
      const std::byte* got = expected.data + first * size;
      if (std::memcmp(want.data(), got, static_cast<std::size_t>(n * size)) == 0) continue;
      Index i = 0;
      while (std::memcmp(want.data() + i * size, got + i * size, static_cast<std::size_t>(size)) ==
             0)
        ++i;
      fail(step, expected, first + i, load_element(got, expected.dtype, i),
           load_element(want.data(), expected.dtype, i));
    }
  }

  static void expect_chunk(const BoundCommunication& step, const Expectation& expected, Index first,
                           Index n, std::byte* want) {
    const Index element = expected.source_offset + first;
    if (expected.from >= 0) {
      return fill_pattern(want, n, expected.dtype, expected.from, expected.key, summands(step),
                          element);
    }
    for (Index i = 0; i < n; ++i) {
      double sum = 0;
      for (Rank rank : step.comm->ranks()) {
        sum += pattern_value(rank, element + i, expected.key, expected.dtype, summands(step));
      }
      store_element(want, expected.dtype, i, sum);
    }
  }

  // Point-to-point patterns are filled without regard to the group.
  static int summands(const BoundCommunication& step) {
    return step.operation.kind == OperationKind::point_to_point ? 1 : step.comm->size();
  }

  void fail(const BoundCommunication& step, const Expectation& expected, Index i, double got,
            double want) {
    verdict_.passed = false;
    const auto me = static_cast<std::size_t>(bootstrap_.rank());
    const std::string source =
        expected.from < 0 ? "the sum over the group" : fmt::format("rank {}", expected.from);
    verdict_.why = fmt::format(
        "exchange check: rank {} on {}: {} '{}': element {} of {} from {} is {}, should be {}", me,
        bootstrap_.hosts()[me], to_string(step.operation.kind), step.operation.label, i,
        expected.elements, source, got, want);
  }

  Execution& execution_;
  Bootstrap& bootstrap_;
  const Injection& injection_;
  Verdict verdict_;
  std::vector<Expectation> expectations_;
  std::uint64_t key_ = 0;
  std::map<const Communicator*, std::uint64_t> group_count_;
  std::map<std::pair<std::pair<Rank, Rank>, bool>, std::uint64_t> pair_count_;
  std::map<const BoundCommunication*, std::vector<std::vector<Index>>> all_send_counts_;
};

}  // namespace

Verdict verify_exchange(Execution& execution, Bootstrap& bootstrap, const Injection& injection) {
  return ExchangeCheck(execution, bootstrap, injection).run();
}

}  // namespace weft
