// Messages that wait in slots of their receiver (transport verbs): what becomes of the slots when
// they are asked for in another order, and when a slot is used again for the same or for another
// message.
#pragma once

#include "contract_world.hpp"

namespace weft::contract {

/// Transport verbs with this way of telling of a message.
inline World::Open verbs_with(SignalMode signal) {
  return [signal](Bootstrap& b, Arena& arena, const SessionOptions& options) {
    SessionOptions mine = options;
    mine.verbs.signal = signal;
    return find_transport("verbs").open(b, arena, mine);
  };
}

/// A message from rank 0 to rank 1, by itself.
struct OneMessage {
  BoundView data;
  OperationId id;
};
inline OneMessage one_message(World& w, Communicator& comm, Index elements) {
  const BoundView data = w.take(elements, DType::f32);
  Operation op{.kind = OperationKind::point_to_point, .label = "message"};
  op.members = {{w.rank() == 0, 1 - w.rank(), data}};
  return {data, comm.prepare(op)};
}

/// Rank 0 sends one message, and `passing` of another communicator after it; rank 1 asks for those
/// first. Returns what this rank's wait says if it is in vain.
inline std::string one_is_passed(Bootstrap& b, SignalMode signal, int passing, double timeout) {
  World w(b, verbs_with(signal), "direct", Bytes{1} << 20, timeout);
  Communicator &first = w.session().communicator(world_group(2, Dimension::pp)),
               &others = w.session().communicator(world_group(2, Dimension::dp));
  const OneMessage waits = one_message(w, first, 2);
  const OneMessage passes = one_message(w, others, 2);
  w.session().commit();
  const auto go = [&](Communicator& comm, const OneMessage& message, int round) {
    w.rank() == 0 ? w.fill(message.data, round) : World::poison(message.data);
    w.run(comm, message.id);
    expect_elements(
        message.data, 0, 2, [&](Index i) { return value(0, i, round); }, "message");
  };
  try {
    for (int iteration = 0; iteration < 3; ++iteration) {
      if (w.rank() == 0) go(first, waits, iteration);
      for (int i = 0; i < passing; ++i) go(others, passes, iteration + i);
      if (w.rank() == 1) go(first, waits, iteration);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::timed_out);
    return error.what();
  }
  return {};
}

/// One that waits keeps its slot, while the others use theirs.
inline void a_message_may_wait(Bootstrap& b) {
  for (const SignalMode signal : {SignalMode::immediate, SignalMode::write}) {
    EXPECT_EQ(one_is_passed(b, signal, 60, 20), "");
  }
}

/// With all slots behind it used up its sender waits, and says for whom.
inline void no_slot_is_used_before_it_is_free(Bootstrap& b) {
  for (const SignalMode signal : {SignalMode::immediate, SignalMode::write}) {
    const std::string said = one_is_passed(b, signal, 100, 0.5);
    const std::string expected =
        b.rank() == 0 ? "for a free slot of rank 1 on " : "for data of rank 0 on ";
    EXPECT_NE(said.find(expected), std::string::npos) << said;
    b.barrier();
  }
}

/// As many messages as go into all slots several times, of some lengths each: every slot's next
/// message is the same as its last one where `messages` divides the slots, else another.
inline void slots_go_round(Bootstrap& b) {
  World w(b, "verbs", "direct", Bytes{8} << 20);
  Communicator& comm = w.session().communicator(world_group(2, Dimension::pp));
  std::vector<std::vector<OneMessage>> groups;
  for (const int messages : {1, 3, 4}) {
    for (const Index elements : {2, 1024}) {
      groups.emplace_back();
      for (int i = 0; i < messages; ++i)
        groups.back().push_back(one_message(w, comm, elements - i % 2));
    }
  }
  w.session().commit();
  for (const std::vector<OneMessage>& group : groups) {
    for (int iteration = 0; iteration < 300 / static_cast<int>(group.size()); ++iteration) {
      for (const OneMessage& message : group) {
        w.rank() == 0 ? w.fill(message.data, iteration) : World::poison(message.data);
        w.run(comm, message.id);
        expect_elements(
            message.data, 0, message.data.elements(),
            [&](Index i) { return value(0, i, iteration); }, "message");
      }
    }
  }
}

}  // namespace weft::contract
