// One rank's prepared messages to and from its peers: all operations of weft-pairs for one message
// size over one transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/communicator.hpp"

namespace weft {

enum class PairTest : std::uint8_t { latency, bandwidth, bidirectional };
inline constexpr PairTest kPairTests[] = {PairTest::latency, PairTest::bandwidth,
                                          PairTest::bidirectional};
std::string_view to_string(PairTest test);

/// How much is sent at once, the same on every rank.
struct PairShape {
  Bytes size = 8;    // of a message
  int window = 64;   // messages posted together
  int sets = 1;      // of buffers, which iterations take in turn
  bool hot = false;  // all messages of a window lie in one place
};

/// What is sent and received; used by all peers and transports in turn.
class PairBuffers {
 public:
  PairBuffers(const PairShape& shape, Arena& arena);
  /// Arena bytes that it takes.
  static Bytes bytes(const PairShape& shape);
  /// Bytes of one set, as they are spread over memory.
  static Bytes set_bytes(const PairShape& shape);

  const PairShape& shape() const { return shape_; }
  BoundView out(int set, int message) const { return view(out_, set, message); }
  BoundView in(int set, int message) const { return view(in_, set, message); }
  BoundView answer_out() const { return answer(answer_out_); }
  BoundView answer_in() const { return answer(answer_in_); }

  /// What `from` sends to `to`: every word depends on both, on the set, the message and the place.
  void fill(Rank from, Rank to);
  void poison();
  /// All of a set against what `from` should have sent; empty: all is right, else which byte of
  /// which message is wrong.
  std::string check(int set, Rank from, Rank to) const;
  /// Places for messages in a set: those of a window, or one.
  int places() const { return shape_.hot ? 1 : shape_.window; }

 private:
  BoundView view(std::byte* base, int set, int message) const;
  static BoundView answer(std::byte* data);

  PairShape shape_;
  std::byte *out_ = nullptr, *in_ = nullptr, *answer_out_ = nullptr, *answer_in_ = nullptr;
};

class PairLink {
 public:
  /// Local. Then the session's commit(), collective, as after every prepare().
  PairLink(Session& session, const PairBuffers& buffers, int world, Rank me,
           const std::vector<Rank>& peers);

  /// Iterations of a test with `peer` stand between open() and close(), as who begins or as who
  /// answers; both ends give the same `turn`, below turns(), which chooses the buffers, and the
  /// next turn to whatever follows an iteration.
  /// Latency: a message there and back. From the first one on a message is always under way: an
  /// iteration ends when the next one has been sent.
  /// Bandwidth: a window, then the receiver's answer. Bidirectional: a window each, then an answer.
  void open(PairTest test, Rank peer, int turn, bool begins);
  void iterate(PairTest test, Rank peer, int turn, bool begins);
  void close(PairTest test, Rank peer, int turn, bool begins);
  /// Turns until all buffers have been used.
  int turns(PairTest test) const { return test == PairTest::latency ? messages_ : sets_; }

 private:
  struct Message {
    OperationId first = 0, next = 0, last = 0;  // sent; received, and the next sent; received
    OperationId echo = 0;                       // received and sent back
  };
  struct Window {
    OperationId send = 0, receive = 0, both = 0;
  };
  struct Peer {
    std::vector<Message> messages;  // by turn
    std::vector<Window> windows;    // by set
    OperationId send_answer = 0, receive_answer = 0;
  };
  Peer prepare(const PairBuffers& buffers, Rank peer);
  std::vector<Message> prepare_messages(const PairBuffers& buffers, Rank peer);
  OperationId add(Operation operation, std::string_view what, Rank peer);
  void run(OperationId id) { comm_.run(id, *stream_); }
  const Message& message(Rank peer, int turn) const {
    return peers_[static_cast<std::size_t>(peer)].messages[static_cast<std::size_t>(turn)];
  }

  Communicator& comm_;
  int sets_, messages_;
  std::unique_ptr<Stream> stream_ = make_stream(StreamKind::inline_);
  std::vector<Peer> peers_;  // by rank; those of others only
};

}  // namespace weft
