// Broken wires must be found out: each mutation is a test double that leaves out one thing a wire
// promises, and the checks that all transports pass must object. (The third mutation, a flag
// published in relaxed order, is a build of its own: see WEFT_MUTATION_RELAXED_FLAG.)
#include "contract_slow_peer.hpp"
#include "transports/shm_wire.hpp"

namespace weft {
namespace {

using contract::run_ranks;
using contract::World;

/// The shm wire, but for what a mutation changes.
class MutatedWire : public Transport {
 public:
  explicit MutatedWire(std::unique_ptr<Transport> wire) : wire_(std::move(wire)) {}
  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override {
    wire_->put(channel, source, destination, n);
  }
  void signal(Channel channel) override { wire_->signal(channel); }
  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    wire_->wait(channel, at_least, what);
  }
  void flush() override { wire_->flush(); }
  CommId max_comms() const override { return wire_->max_comms(); }

 private:
  std::unique_ptr<Transport> wire_;
};

/// Rank 1 loses its third signal of data.
class DroppedSignal final : public MutatedWire {
 public:
  DroppedSignal(std::unique_ptr<Transport> wire, Rank rank)
      : MutatedWire(std::move(wire)), rank_(rank) {}
  void signal(Channel channel) override {
    const bool data = channel.id == kDataChannel;
    if (rank_ == 1 && data && ++signals_ == 3) return;
    MutatedWire::signal(channel);
  }

 private:
  Rank rank_;
  int signals_ = 0;
};

/// Puts without having the receiver's credit.
class MissingCredit final : public MutatedWire {
 public:
  using MutatedWire::MutatedWire;
  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    if (channel.id != kCreditChannel) MutatedWire::wait(channel, at_least, what);
  }
};

template <class Wire, class... Arguments>
World::Open mutated(Arguments... arguments) {
  return [=](Bootstrap& b, Arena& arena, const SessionOptions& options) {
    auto wire = std::make_unique<Wire>(make_shm_wire(b, arena, options, {}), arguments...);
    return make_scheduled_session(b, arena, std::move(wire), options);
  };
}

/// How many ranks the check of slow peers found wrong.
int objections(int ranks, const std::function<World::Open(Bootstrap&)>& open,
               std::string_view algorithm, Index each) {
  std::atomic<int> found = 0;
  run_ranks(ranks, [&](Bootstrap& b) {
    World w(b, open(b), algorithm, Bytes{16} << 20);
    found += slow_peer(w, w.session(), each).empty() ? 0 : 1;
    b.barrier();
  });
  return found;
}

TEST(ShmMutation, DroppedSignalTimesOutNamingThePeer) {
  run_ranks(2, [](Bootstrap& b) {
    World w(b, mutated<DroppedSignal>(b.rank()), "direct", Bytes{1} << 20, 0.3);
    Communicator& comm = w.session().communicator(contract::world_group(2));
    contract::Case gather = contract::all_gather_case(w, 100, DType::f32, true);
    const OperationId id = comm.prepare(gather.op);
    w.session().commit();
    std::string text;
    try {
      for (int i = 0; i < 3; ++i) w.run(comm, id);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::timed_out);
      text = e.what();
    }
    const bool waits = b.rank() == 0;
    EXPECT_EQ(
        text.find("for data of rank 1 on thread-host in all_gather 'gather'") != std::string::npos,
        waits)
        << text;
    b.barrier();
  });
}

TEST(ShmMutation, MissingCreditIsFound) {
  const auto honest = [](Bootstrap&) { return mutated<MutatedWire>(); };
  const auto broken = [](Bootstrap&) { return mutated<MissingCredit>(); };
  EXPECT_EQ(objections(2, honest, "direct", 1000), 0);
  EXPECT_GT(objections(2, broken, "direct", 1000), 0);
}

/// The native forms without their ready and done flags are what `bare` runs.
TEST(ShmMutation, MissingReadyFlagIsFound) {
  const auto with = [](bool bare) {
    return [bare](Bootstrap&) -> World::Open {
      return [bare](Bootstrap& b, Arena& arena, const SessionOptions& options) {
        return make_scheduled_session(
            b, arena, make_shm_wire(b, arena, options, {.bare = bare, .many = true}), options);
      };
    };
  };
  EXPECT_EQ(objections(2, with(false), kNativeAlgorithm, 30000), 0);
  EXPECT_GT(objections(2, with(true), kNativeAlgorithm, 30000), 0);
}

}  // namespace
}  // namespace weft
