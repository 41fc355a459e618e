#include "bench/pair_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr Bytes kSpacing = 256;  // a pair of cache lines, and every vector width
constexpr Bytes kAnswerBytes = 8;
constexpr int kPoison = 0xA5;

Bytes stride(const PairShape& shape) { return (shape.size + kSpacing - 1) / kSpacing * kSpacing; }

Bytes places_of(const PairShape& shape) { return shape.hot ? 1 : shape.window; }

/// A word that no other (key, place) is likely to have.
std::uint32_t word_of(std::uint64_t key, Bytes place) {
  std::uint64_t x = key + static_cast<std::uint64_t>(place) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9u;
  return static_cast<std::uint32_t>(x >> 32);
}

std::uint64_t key_of(Rank from, Rank to, int set, Bytes message) {
  std::uint64_t key = 0x243F6A8885A308D3u;
  for (const std::int64_t part :
       {std::int64_t{from}, std::int64_t{to}, std::int64_t{set}, std::int64_t{message}}) {
    key = (key ^ static_cast<std::uint64_t>(part)) * 0x100000001B3u;
    key ^= key >> 29;
  }
  return key;
}

/// One operation: all messages of a set, each way that is asked for.
Operation window(const PairBuffers& buffers, int set, Rank peer, bool sends, bool receives) {
  Operation operation{.kind = OperationKind::point_to_point};
  for (const bool send : {false, true}) {  // receives first, so that messages find their buffers
    if (!(send ? sends : receives)) continue;
    for (int i = 0; i < buffers.shape().window; ++i) {
      operation.members.push_back({send, peer, send ? buffers.out(set, i) : buffers.in(set, i)});
    }
  }
  return operation;
}

}  // namespace

std::string_view to_string(PairTest test) {
  switch (test) {
    case PairTest::latency:
      return "latency";
    case PairTest::bandwidth:
      return "bandwidth";
    case PairTest::bidirectional:
      return "bidirectional";
  }
  return "?";
}

Bytes PairBuffers::set_bytes(const PairShape& shape) { return places_of(shape) * stride(shape); }

Bytes PairBuffers::bytes(const PairShape& shape) {
  return 2 * (shape.sets * set_bytes(shape) + kSpacing);
}

PairBuffers::PairBuffers(const PairShape& shape, Arena& arena) : shape_(shape) {
  out_ = arena.take(shape.sets * set_bytes(shape), kSpacing).data();
  in_ = arena.take(shape.sets * set_bytes(shape), kSpacing).data();
  answer_out_ = arena.take(kAnswerBytes, kSpacing).data();
  answer_in_ = arena.take(kAnswerBytes, kSpacing).data();
}

BoundView PairBuffers::view(std::byte* base, int set, int message) const {
  const Bytes place = set * set_bytes(shape_) + message % places() * stride(shape_);
  const Index words = shape_.size / size_of(DType::f32);
  return {.data = base + place, .dtype = DType::f32, .rows = 1, .cols = words, .ld = words};
}

BoundView PairBuffers::answer(std::byte* data) {
  const Index words = kAnswerBytes / size_of(DType::f32);
  return {.data = data, .dtype = DType::f32, .rows = 1, .cols = words, .ld = words};
}

void PairBuffers::fill(Rank from, Rank to) {
  for (int set = 0; set < shape_.sets; ++set) {
    for (int message = 0; message < places(); ++message) {
      const std::uint64_t key = key_of(from, to, set, message);
      std::byte* data = out(set, message).data;
      for (Bytes at = 0; at < shape_.size; at += sizeof(std::uint32_t)) {
        const std::uint32_t word = word_of(key, at);
        std::memcpy(data + at, &word, sizeof word);
      }
    }
  }
}

void PairBuffers::poison() {
  std::memset(in_, kPoison, static_cast<std::size_t>(shape_.sets * set_bytes(shape_)));
}

std::string PairBuffers::check(int set, Rank from, Rank to) const {
  for (int message = 0; message < places(); ++message) {
    const std::uint64_t key = key_of(from, to, set, message);
    const std::byte* data = in(set, message).data;
    for (Bytes at = 0; at < shape_.size; at += sizeof(std::uint32_t)) {
      std::uint32_t word = 0;
      std::memcpy(&word, data + at, sizeof word);
      if (word == word_of(key, at)) continue;
      return fmt::format(
          "rank {} received {:#010x} from rank {} at byte {} of message {}, expected {:#010x}", to,
          word, from, at, message, word_of(key, at));
    }
  }
  return {};
}

PairLink::PairLink(Session& session, const PairBuffers& buffers, int world, Rank me,
                   const std::vector<Rank>& peers)
    : comm_(session.communicator(
          {.dim = Dimension::none, .ranks = {.base = 0, .axes = {{.count = world, .stride = 1}}}})),
      sets_(buffers.shape().sets),
      messages_(buffers.shape().sets * buffers.places()) {
  peers_.resize(static_cast<std::size_t>(world));
  for (const Rank peer : peers) {
    if (peer != me) peers_[static_cast<std::size_t>(peer)] = prepare(buffers, peer);
  }
}

OperationId PairLink::add(Operation operation, std::string_view what, Rank peer) {
  operation.label = fmt::format("{} with rank {}", what, peer);
  return comm_.prepare(operation);
}

// Of what is prepared here and at the peer, the n-th message sent is the n-th received: hence the
// order, in which the turns of those sent and of those received are 0, 1, .. and 0 again, then the
// rest from 1, then all.
std::vector<PairLink::Message> PairLink::prepare_messages(const PairBuffers& buffers, Rank peer) {
  const int places = buffers.places();
  const auto received = [&](int turn) -> PointToPoint {
    return {false, peer, buffers.in(turn / places, turn % places)};
  };
  const auto sent = [&](int turn) -> PointToPoint {
    return {true, peer, buffers.out(turn / places, turn % places)};
  };
  const auto prepared = [&](std::vector<PointToPoint> members, std::string_view what) {
    return add(
        {.kind = OperationKind::point_to_point, .members = std::move(members), .in_order = true},
        what, peer);
  };
  const auto first = [&](int turn) { return prepared({sent(turn)}, "message sent"); };
  const auto last = [&](int turn) { return prepared({received(turn)}, "message received"); };
  std::vector<Message> all(static_cast<std::size_t>(messages_));
  all.front().first = first(0);
  for (int turn = 0; turn < messages_; ++turn) {
    all[static_cast<std::size_t>(turn)].next =
        prepared({received(turn), sent((turn + 1) % messages_)}, "message received, the next sent");
  }
  all.front().last = last(0);
  for (int turn = 1; turn < messages_; ++turn) {
    all[static_cast<std::size_t>(turn)].first = first(turn);
    all[static_cast<std::size_t>(turn)].last = last(turn);
  }
  for (int turn = 0; turn < messages_; ++turn) {
    all[static_cast<std::size_t>(turn)].echo =
        prepared({received(turn), sent(turn)}, "message received and sent back");
  }
  return all;
}

PairLink::Peer PairLink::prepare(const PairBuffers& buffers, Rank peer) {
  Peer mine;
  mine.messages = prepare_messages(buffers, peer);
  for (int set = 0; set < sets_; ++set) {
    mine.windows.push_back(
        {add(window(buffers, set, peer, true, false), "window sent", peer),
         add(window(buffers, set, peer, false, true), "window received", peer),
         add(window(buffers, set, peer, true, true), "windows both ways", peer)});
  }
  Operation send{.kind = OperationKind::point_to_point}, receive = send;
  send.members = {{true, peer, buffers.answer_out()}};
  receive.members = {{false, peer, buffers.answer_in()}};
  mine.send_answer = add(send, "answer sent", peer);
  mine.receive_answer = add(receive, "answer received", peer);
  return mine;
}

void PairLink::open(PairTest test, Rank peer, int turn, bool begins) {
  if (test == PairTest::latency && begins) run(message(peer, turn).first);
}

[[gnu::hot]] void PairLink::iterate(PairTest test, Rank peer, int turn, bool begins) {
  if (test == PairTest::latency) {
    const Message& mine = message(peer, turn);
    run(begins ? mine.next : mine.echo);
    return;
  }
  const Peer& with = peers_[static_cast<std::size_t>(peer)];
  const Window& window = with.windows[static_cast<std::size_t>(turn)];
  const bool both = test == PairTest::bidirectional;
  run(both ? window.both : begins ? window.send : window.receive);
  run(begins ? with.receive_answer : with.send_answer);
}

void PairLink::close(PairTest test, Rank peer, int turn, bool begins) {
  if (test != PairTest::latency) return;
  const Message& mine = message(peer, turn);
  run(begins ? mine.last : mine.echo);
}

}  // namespace weft
