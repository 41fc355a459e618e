// Broken wires must be found out: each mutation is a test double that leaves out one thing a wire
// promises, and the checks that all transports pass must object. The wire inside is a real one.
#pragma once

#include "contract_cases.hpp"
#include "transports/transport.hpp"

namespace weft::contract {

/// Makes the wire that a mutation spoils.
using MakeWire =
    std::function<std::unique_ptr<Transport>(Bootstrap&, Arena&, const SessionOptions&)>;

/// A wire, but for what a mutation changes.
class MutatedWire : public Transport {
 public:
  explicit MutatedWire(std::unique_ptr<Transport> wire) : wire_(std::move(wire)) {}
  void put(Channel channel, Bytes source, Bytes destination, Bytes n) override {
    wire_->put(channel, source, destination, n);
  }
  void signal(Channel channel) override { wire_->signal(channel); }
  std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination, Bytes n,
                                   bool credited) override {
    return wire_->send(channel, source, destination, n, credited);
  }
  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    wire_->wait(channel, at_least, what);
  }
  std::size_t wait_any(std::span<const Expected> any, const char* what) override {
    return wire_->wait_any(any, what);
  }
  std::span<const PostedPart> fetch(Channel channel, Bytes source, Bytes destination,
                                    Bytes n) override {
    return wire_->fetch(channel, source, destination, n);
  }
  void post() override { wire_->post(); }
  void flush() override { wire_->flush(); }
  CommId max_comms() const override { return wire_->max_comms(); }
  Bytes uncredited_bytes() const override { return wire_->uncredited_bytes(); }
  void commit(Bytes used, std::span<const Rank> peers) override { wire_->commit(used, peers); }

 private:
  std::unique_ptr<Transport> wire_;
};

/// Rank 1 loses its third signal of data: verbs calls it an immediate. The data arrive.
class DroppedSignal final : public MutatedWire {
 public:
  DroppedSignal(std::unique_ptr<Transport> wire, Rank rank)
      : MutatedWire(std::move(wire)), rank_(rank) {}
  std::span<const PostedPart> send(Channel channel, Bytes source, Bytes destination, Bytes n,
                                   bool credited) override {
    if (!loses(channel)) return MutatedWire::send(channel, source, destination, n, credited);
    put(channel, source, destination, n);
    return {};
  }
  void signal(Channel channel) override {
    if (!loses(channel)) MutatedWire::signal(channel);
  }

 private:
  bool loses(const Channel& channel) {
    return rank_ == 1 && channel.id == kDataChannel && ++signals_ == 3;
  }

  Rank rank_;
  int signals_ = 0;
};

/// Sends without having the receiver's credit; goes on before its data were fetched.
class MissingCredit final : public MutatedWire {
 public:
  using MutatedWire::MutatedWire;
  void wait(Channel channel, std::uint64_t at_least, const char* what) override {
    if (channel.id != kCreditChannel) MutatedWire::wait(channel, at_least, what);
  }
  std::size_t wait_any(std::span<const Expected> any, const char* what) override {
    return any.front().channel.id == kCreditChannel ? 0 : MutatedWire::wait_any(any, what);
  }
};

template <class Wire, class... Arguments>
World::Open mutated(const MakeWire& make, Arguments... arguments) {
  return [=](Bootstrap& b, Arena& arena, const SessionOptions& options) {
    return make_scheduled_session(
        b, arena, std::make_unique<Wire>(make(b, arena, options), arguments...), options);
  };
}

/// Collective. Whether the check of slow peers finds something wrong on any rank.
inline bool anyone_objects(Bootstrap& b, const World::Open& open, std::string_view algorithm,
                           Index each) {
  World w(b, open, algorithm, Bytes{16} << 20);
  const bool found = !slow_peer(w, w.session(), each).empty();
  return b.max(found ? 1 : 0) > 0;
}

/// The rank that waits for the lost signal says whom it waits for, and in what.
inline void dropped_signal_names_the_peer(Bootstrap& b, const MakeWire& make) {
  World w(b, mutated<DroppedSignal>(make, b.rank()), "direct", Bytes{1} << 20, 0.3);
  Communicator& comm = w.session().communicator(world_group(2));
  Case gather = all_gather_case(w, 10000, DType::f32, true);
  const OperationId id = comm.prepare(gather.op);
  w.session().commit();
  std::string text;
  try {
    for (int i = 0; i < 3; ++i) w.run(comm, id);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::timed_out);
    text = e.what();
  }
  const std::string expected = "for data of rank 1 on " + b.hosts()[1] + " in all_gather 'gather'";
  EXPECT_EQ(text.find(expected) != std::string::npos, b.rank() == 0) << text;
  b.barrier();
}

inline void missing_credit_is_found(Bootstrap& b, const MakeWire& make) {
  for (const char* algorithm : {"direct", "pull"}) {
    EXPECT_FALSE(anyone_objects(b, mutated<MutatedWire>(make), algorithm, 10000)) << algorithm;
    EXPECT_TRUE(anyone_objects(b, mutated<MissingCredit>(make), algorithm, 10000)) << algorithm;
  }
}

}  // namespace weft::contract
