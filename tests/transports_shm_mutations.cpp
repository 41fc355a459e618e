// What shm must not leave out. (A flag published in relaxed order is a build of its own: see
// WEFT_MUTATION_RELAXED_FLAG.)
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
  run_ranks(2, [](Bootstrap& b) { contract::missing_credit_is_found(b, make_wire); });
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

}  // namespace
}  // namespace weft
