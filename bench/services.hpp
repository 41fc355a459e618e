// What a schedule needs of the network that carries it.
#pragma once

#include <string>
#include <vector>

#include "patterns/types.hpp"

namespace weft {

/// One communication step of one rank, as far as it matters for its needs.
struct StepDemand {
  bool sends = false;         // any bytes leave a rank
  bool reduces = false;       // what arrives is added up
  bool signalled = false;     // data are announced apart from them, by a counter (one-sided wire)
  int rounds = 0;             // each waits for messages of the one before
  int fan_in = 0;             // most senders whose messages one round awaits
  int messages_per_pair = 0;  // most of one sender to one receiver
  bool operator==(const StepDemand&) const = default;
};

/// reliable: whoever waits for bytes waits for ever if they are lost, so something must send them
///   again; false only where nothing is sent.
/// ordered: a signal must not overtake its data, and of several messages of a pair only their order
///   tells which is which.
/// exactly_once: a sum must take each part once, a counter must count each message once.
/// lossless: a loss costs more than its own bytes: several senders meet at one receiver's port and
///   overrun it at once (fan-in), or rounds make every later message wait for the repeated one.
struct ServiceNeeds {
  bool reliable = false, ordered = false, exactly_once = false, lossless = false;
  bool operator==(const ServiceNeeds&) const = default;
};

ServiceNeeds needs_of(const StepDemand& demand);
/// What all of them together need.
ServiceNeeds needs_of(const std::vector<StepDemand>& demands);
ServiceNeeds operator|(const ServiceNeeds& a, const ServiceNeeds& b);

/// "reliable, ordered, exactly once, lossless"; "nothing" where all are false.
std::string to_string(const ServiceNeeds& needs);

/// As small numbers, for an exchange between ranks.
int bits_of(const ServiceNeeds& needs);
ServiceNeeds needs_from(int bits);

}  // namespace weft
