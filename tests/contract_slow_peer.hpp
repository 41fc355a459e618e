// What goes wrong between ranks of different speed when a flag is missing: a rank that reads a
// peer's input before it is there, or overwrites what a peer has not read yet. Says what it found
// in place of failing, so that mutation tests can demand a finding.
#pragma once

#include <chrono>

#include "contract_world.hpp"

namespace weft::contract {

/// First element of `view` that is not expected(i); empty: all are.
inline std::string first_difference(const BoundView& view,
                                    const std::function<double(Index)>& expected) {
  for (Index i = 0; i < view.elements(); ++i) {
    const double actual = load_element(view.data, view.dtype, i);
    if (actual != expected(i))
      return "element " + std::to_string(i) + " is " + std::to_string(actual) + ", expected " +
             std::to_string(expected(i));
  }
  return {};
}

/// Runs a gather, a sum and a broadcast of `each` elements in turns on a session of `w`. In each
/// run another rank comes late with its input and looks late at its output, while the others use
/// theirs at once. Returns the first wrong element that this rank saw.
inline std::string slow_peer(World& w, Session& session, Index each) {
  constexpr std::chrono::milliseconds kLate{3};
  const int n = w.size();
  Communicator& comm = session.communicator(world_group(n));
  Case gather = all_gather_case(w, each, DType::f32, true),
       sum = all_reduce_case(w, each, DType::f32),
       // Its root waits for nobody's data: only for their being done with its own.
      cast = broadcast_case(w, each, DType::f32, 0);
  const auto cases = {&gather, &sum, &cast};
  for (Case* c : cases) c->id = comm.prepare(c->op);
  session.commit();
  session.recorder().enable(false);
  std::string found;
  for (int iteration = 0; iteration < 2 * n; ++iteration) {
    for (Case* c : cases) {
      const bool slow = iteration % n == w.rank();
      if (slow) std::this_thread::sleep_for(kLate);
      w.fill(c->op.in, iteration);
      w.poison(c->op.out);  // which nobody else has written yet
      w.run(comm, c->id);
      w.poison(c->op.in);
      if (slow) std::this_thread::sleep_for(kLate);
      const auto expected = [&](Index i) {
        if (c == &gather) return value(static_cast<Rank>(i / each), i % each, iteration);
        if (c == &cast) return value(0, i, iteration);
        return sum_of(n, 0, iteration)(i);
      };
      if (found.empty()) found = first_difference(c->op.out, expected);
    }
  }
  return found;
}

}  // namespace weft::contract
