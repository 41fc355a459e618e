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

/// One operation: messages first .. first+count of a set, each way that is asked for.
Operation messages(const PairBuffers& buffers, int set, int first, int count, Rank peer, bool sends,
                   bool receives) {
  Operation operation{.kind = OperationKind::point_to_point};
  for (const bool send : {false, true}) {  // receives first, so that messages find their buffers
    if (!(send ? sends : receives)) continue;
    for (int i = first; i < first + count; ++i) {
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

// The order is the same at both ends, so that the n-th message sent is the n-th received.
PairLink::Peer PairLink::prepare(const PairBuffers& buffers, Rank peer) {
  const auto add = [&](Operation operation, std::string_view what) {
    operation.label = fmt::format("{} with rank {}", what, peer);
    return comm_.prepare(operation);
  };
  Peer mine;
  const int window = buffers.shape().window;
  for (int set = 0; set < sets_; ++set) {
    for (int i = 0; i < buffers.places(); ++i) {
      mine.ones.push_back({add(messages(buffers, set, i, 1, peer, true, false), "send"),
                           add(messages(buffers, set, i, 1, peer, false, true), "receive")});
    }
    const auto all = [&](bool sends, bool receives) {
      return messages(buffers, set, 0, window, peer, sends, receives);
    };
    mine.windows.push_back({add(all(true, false), "window sent"),
                            add(all(false, true), "window received"),
                            add(all(true, true), "windows both ways")});
  }
  Operation send{.kind = OperationKind::point_to_point}, receive = send;
  send.members = {{true, peer, buffers.answer_out()}};
  receive.members = {{false, peer, buffers.answer_in()}};
  mine.send_answer = add(send, "answer sent");
  mine.receive_answer = add(receive, "answer received");
  return mine;
}

[[gnu::hot]] void PairLink::begin(PairTest test, Rank peer, int turn) {
  const Peer& with = peers_[static_cast<std::size_t>(peer)];
  const auto at = static_cast<std::size_t>(turn);
  if (test == PairTest::latency) {
    run(with.ones[at].send);
    run(with.ones[at].receive);
    return;
  }
  run(test == PairTest::bandwidth ? with.windows[at].send : with.windows[at].both);
  run(with.receive_answer);
}

[[gnu::hot]] void PairLink::answer(PairTest test, Rank peer, int turn) {
  const Peer& with = peers_[static_cast<std::size_t>(peer)];
  const auto at = static_cast<std::size_t>(turn);
  if (test == PairTest::latency) {
    run(with.ones[at].receive);
    run(with.ones[at].send);
    return;
  }
  run(test == PairTest::bandwidth ? with.windows[at].receive : with.windows[at].both);
  run(with.send_answer);
}

}  // namespace weft
