// What shm must not leave out. (A flag published in relaxed order is a build of its own: see
// WEFT_MUTATION_RELAXED_FLAG.)
#include <atomic>
#include <chrono>
#include <thread>

#include "contract_mutations.hpp"
#include "transports/shm_wire.hpp"

namespace weft {
namespace {

using contract::run_ranks;
using contract::World;

std::unique_ptr<Transport> make_wire(Bootstrap& b, Arena& arena, const SessionOptions& options) {
  return make_shm_wire(b, arena, options, {});
}

TEST(ShmMutation, DroppedSignalTimesOutNamingThePeer) {
  run_ranks(2, [](Bootstrap& b) { contract::dropped_signal_names_the_peer(b, make_wire); });
}

TEST(ShmMutation, MissingCreditIsFound) {
  for (const int ranks : {2, 3})
    run_ranks(ranks, [](Bootstrap& b) { contract::missing_credit_is_found(b, make_wire); });
}

/// The native forms without their ready and done flags are what `bare` runs.
TEST(ShmMutation, MissingReadyFlagIsFound) {
  const auto with = [](bool bare) -> World::Open {
    return [bare](Bootstrap& b, Arena& arena, const SessionOptions& options) {
      return make_scheduled_session(
          b, arena, make_shm_wire(b, arena, options, {.bare = bare, .many = true}), options);
    };
  };
  run_ranks(2, [&](Bootstrap& b) {
    EXPECT_FALSE(contract::anyone_objects(b, with(false), kNativeAlgorithm, 30000));
    EXPECT_TRUE(contract::anyone_objects(b, with(true), kNativeAlgorithm, 30000));
  });
}

/// Tells when rank 0 has sent data to rank 2.
class WatchedWire final : public contract::MutatedWire {
 public:
  WatchedWire(std::unique_ptr<Transport> wire, Rank rank, std::atomic<bool>* sent)
      : MutatedWire(std::move(wire)), rank_(rank), sent_(sent) {}
  std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination, Bytes n,
                                   bool credited) override {
    const auto parts = MutatedWire::send(channel, source, destination, n, credited);
    if (rank_ == 0 && channel.peer == 2) *sent_ = true;
    return parts;
  }

 private:
  Rank rank_;
  std::atomic<bool>* sent_;
};

/// Rank 1, to which rank 0 sends first, only comes when rank 2 has been sent its part.
TEST(Schedules, ALatePeerHoldsUpNobodyElse) {
  std::atomic<bool> sent = false;
  run_ranks(3, [&](Bootstrap& b) {
    World w(b, contract::mutated<WatchedWire>(make_wire, b.rank(), &sent), "direct");
    Communicator& comm = w.session().communicator(contract::world_group(3));
    contract::Case gather = contract::all_gather_case(w, 5000, DType::f32, true);
    const OperationId id = comm.prepare(gather.op);
    w.session().commit();
    w.fill(gather.op.in, 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (b.rank() == 1 && !sent && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_TRUE(b.rank() != 1 || sent);
    w.run(comm, id);
    for (Rank r = 0; r < 3; ++r) {
      contract::expect_elements(
          gather.op.out, r * 5000, 5000, [&](Index i) { return contract::value(r, i, 0); },
          "gather");
    }
  });
}

}  // namespace
}  // namespace weft
