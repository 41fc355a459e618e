// The Communicator contract over threads of this process: every algorithm of shm.
#include "contract_cases.hpp"
#include "transports/schedule.hpp"
#include "transports/shm_native_sizes.hpp"

namespace weft {
namespace {

using contract::run_ranks;

struct Parameter {
  std::string algorithm;
  int ranks;
};
void PrintTo(const Parameter& p, std::ostream* out) {
  *out << p.algorithm << ", " << p.ranks << " ranks";
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (const std::string_view algorithm : find_transport("shm").algorithms) {
    for (int n = 1; n <= 9; ++n) all.push_back({std::string(algorithm), n});
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  std::string name = info.param.algorithm + "_" + std::to_string(info.param.ranks);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

class ShmContract : public ::testing::TestWithParam<Parameter> {
 protected:
  void on_all(const std::function<void(Bootstrap&)>& fn, int ranks_per_host = 0) {
    run_ranks(GetParam().ranks, fn, ranks_per_host);
  }
};

TEST_P(ShmContract, CollectivesF32) {
  on_all([](Bootstrap& b) { contract::collectives(b, "shm", GetParam().algorithm, DType::f32); });
}

TEST_P(ShmContract, CollectivesBf16OnVirtualHosts) {
  on_all([](Bootstrap& b) { contract::collectives(b, "shm", GetParam().algorithm, DType::bf16); },
         2);
}

TEST_P(ShmContract, CollectivesF16OnUnevenVirtualHosts) {
  on_all([](Bootstrap& b) { contract::collectives(b, "shm", GetParam().algorithm, DType::f16); },
         3);
}

TEST_P(ShmContract, Promises) {
  for (const contract::NamedPromise& promise : contract::kPromises) {
    SCOPED_TRACE(promise.name);
    on_all([&](Bootstrap& b) { promise.check(b, "shm", GetParam().algorithm); });
  }
}

/// The sizes of a case, made from the counts by which the test's own data were laid out.
ScheduleInput input_of(const contract::Case& c, Bootstrap& b, Index each) {
  ScheduleInput input{.kind = c.op.kind,
                      .size = b.size(),
                      .counts = c.op.counts,
                      .matrix = {},
                      .root = c.op.root,
                      .hosts = b.host_indices()};
  if (c.op.counts.empty()) input.counts = {c.op.out.elements()};
  if (c.op.kind != OperationKind::all_to_all_v) return input;
  input.counts.clear();
  for (int from = 0; from < b.size(); ++from) {
    auto& row = input.matrix.emplace_back();
    for (int to = 0; to < b.size(); ++to)
      row.push_back(contract::pair_count(from, to, each, c.even));
  }
  return input;
}

/// What all ranks recorded together: a pull is recorded by its reader, a put by its sender.
FlowLedger joined_ledger(Bootstrap& b, const FlowLedger& mine) {
  FlowLedger all;
  const auto packed = mine.serialize();
  for (const auto& bytes : b.all_gather(std::span(packed)))
    all.merge(FlowLedger::deserialize(bytes.data(), bytes.size()));
  return all;
}

/// Payload that was really moved, against the closed form of the algorithm: bytes that this rank
/// sent and received, and bytes between hosts.
void expect_closed_form(const FlowLedger& all, const TrafficTotals& expected, Rank rank,
                        Bytes element) {
  TrafficTotals moved;
  for (const Flow& flow : all.flows()) {
    EXPECT_EQ(flow.dim, Dimension::tp);
    if (flow.kind != MessageKind::payload) continue;
    if (flow.destination == rank) moved.received += flow.bytes;
    if (flow.source != rank) continue;
    moved.sent += flow.bytes;
    moved.messages_sent += flow.messages;
    moved.sent_to_other_hosts += flow.network == Network::scale_out ? flow.bytes : 0;
  }
  const TrafficTotals bytes{expected.sent * element, expected.received * element,
                            expected.messages_sent, expected.sent_to_other_hosts * element};
  EXPECT_EQ(moved, bytes) << moved.sent << " sent, " << moved.received << " received, "
                          << moved.messages_sent << " messages, " << moved.sent_to_other_hosts
                          << " elsewhere; expected " << bytes.sent << ", " << bytes.received << ", "
                          << bytes.messages_sent << ", " << bytes.sent_to_other_hosts;
}

TrafficTotals predicted(const std::string& algorithm, const ScheduleInput& input, Rank rank) {
  if (algorithm == kNativeAlgorithm) return shm_native_traffic(input, size_of(DType::bf16), rank);
  return find_algorithm(algorithm).traffic(input, rank);
}

void ledger_is_the_closed_form(Bootstrap& b, const std::string& algorithm, Index each) {
  contract::World w(b, "shm", algorithm, Bytes{16} << 20);
  Communicator& comm = w.session().communicator(contract::world_group(w.size()));
  std::vector<contract::Case> cases = contract::all_cases(w, each, DType::bf16);
  std::erase_if(cases,
                [&](const auto& c) { return !contract::suits(algorithm, c.op.kind, w.size()); });
  for (contract::Case& c : cases) c.id = comm.prepare(c.op);
  w.session().commit();
  for (const contract::Case& c : cases) {
    SCOPED_TRACE(to_string(c.op.kind));
    w.session().recorder().clear();
    w.run(comm, c.id);
    expect_closed_form(joined_ledger(b, w.session().recorder().seal()),
                       predicted(algorithm, input_of(c, b, each), w.rank()), w.rank(),
                       size_of(DType::bf16));
  }
}

TEST_P(ShmContract, LedgerIsTheClosedForm) {
  for (const Index each : {3, 1003, 20011}) {
    on_all([&](Bootstrap& b) { ledger_is_the_closed_form(b, GetParam().algorithm, each); }, 2);
  }
}

TEST(ShmLedger, MessagesOfAGatherAndItsCredits) {
  run_ranks(2, [](Bootstrap& b) {
    contract::World w(b, "shm", "direct");
    Communicator& comm = w.session().communicator(contract::world_group(2, Dimension::dp));
    const OperationId id = comm.prepare({.kind = OperationKind::all_gather,
                                         .in = w.take(b.rank() == 0 ? 3 : 5, DType::f32),
                                         .out = w.take(8, DType::f32),
                                         .counts = {3, 5}});
    w.session().commit();
    w.session().recorder().clear();
    w.run(comm, id);
    const Message payload{.source = b.rank(),
                          .destination = 1 - b.rank(),
                          .bytes = b.rank() == 0 ? 12 : 20,
                          .dim = Dimension::dp};
    const Message credit{.source = b.rank(),
                         .destination = 1 - b.rank(),
                         .bytes = 8,
                         .kind = MessageKind::control,
                         .dim = Dimension::dp};
    std::vector<Message> messages = w.session().recorder().messages();
    double last = 0;
    for (Message& m : messages) {
      EXPECT_LT(last, m.posted_us);  // one after the other, and each takes its time
      EXPECT_LE(m.posted_us, m.completed_us);
      last = std::exchange(m.completed_us, 0);
      m.posted_us = 0;
    }
    EXPECT_EQ(messages, (std::vector<Message>{credit, payload}));
    EXPECT_EQ(w.session().flow_source(), "recorded");
  });
}

TEST(ShmLedger, RunTimeCountsPublishPlacesAsControl) {
  run_ranks(3, [](Bootstrap& b) {
    contract::World w(b, "shm", "ring");
    Communicator& comm = w.session().communicator(contract::world_group(3, Dimension::ep));
    const std::vector<std::int32_t> rows = {2, 2, 2};
    const OperationId id = comm.prepare({.kind = OperationKind::all_to_all_v,
                                         .in = w.take(60, DType::bf16),
                                         .out = w.take(60, DType::bf16),
                                         .run_time = RunTimeCounts{rows.data(), rows.data(), 1, 10},
                                         .dtype = DType::bf16});
    w.session().commit();
    w.session().recorder().clear();
    w.run(comm, id);
    const FlowLedger ledger = w.session().recorder().seal();
    EXPECT_EQ(ledger.bytes(MessageKind::payload), 2 * 2 * 10 * 2);  // 2 peers, 2 rows of 10 bf16
    EXPECT_EQ(ledger.bytes(MessageKind::control), 2 * (16 + 8));    // a place and a credit for each
  });
}

INSTANTIATE_TEST_SUITE_P(All, ShmContract, ::testing::ValuesIn(parameters()), name_of);

}  // namespace
}  // namespace weft
