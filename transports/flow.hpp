// Traffic as it is posted: messages, appended without allocation; flows, made of them when the
// recorder is sealed.
//
//   FlowRecorder recorder(1 << 16);
//   recorder.append({.source = 0, .destination = 1, .bytes = 4096});  // where it is really posted
//   FlowLedger ledger = recorder.seal();                              // sorted; comparable with ==
//
// Three levels, never mixed: an operation is what the pattern asks for, a message is one posted
// unit, a flow is all bytes of one (source, destination, channel) in one iteration.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "patterns/types.hpp"
#include "transports/size_histogram.hpp"

namespace weft {

enum class Network : std::uint8_t { scale_up, scale_out, other };
std::string_view to_string(Network network);

/// Payload counts in a row's wire bytes; control (credits, count exchange by the transport itself)
/// is kept apart.
enum class MessageKind : std::uint8_t { payload, control };

struct Message {
  Rank source = 0, destination = 0;  // global
  Bytes bytes = 0;
  std::uint16_t channel = 0;  // verbs: index of the queue pair; else 0
  MessageKind kind = MessageKind::payload;
  Dimension dim = Dimension::none;
  Network network = Network::scale_up;
  /// When it was posted and when it was complete, us of CLOCK_MONOTONIC of the recording host; 0
  /// where the wire did not look.
  double posted_us = 0, completed_us = 0;
  bool operator==(const Message&) const = default;
};

/// All bytes of one (source, destination, channel, dimension) in one iteration.
struct Flow {
  Rank source = 0, destination = 0;
  std::uint16_t channel = 0;
  MessageKind kind = MessageKind::payload;
  Dimension dim = Dimension::none;
  Network network = Network::scale_up;
  std::int64_t messages = 0;
  Bytes bytes = 0;
  bool operator==(const Flow&) const = default;
  auto key() const { return std::tuple(source, destination, channel, kind, dim, network); }
};

class FlowLedger {
 public:
  FlowLedger() = default;
  explicit FlowLedger(std::vector<Message> messages);  // zero-byte messages are no flows

  const std::vector<Flow>& flows() const { return flows_; }  // sorted by key
  std::vector<Bytes> message_sizes() const;                  // payload only, sorted
  SizeHistogram messages() const;                            // payload only
  Bytes bytes(MessageKind kind) const;
  Bytes bytes(MessageKind kind, Network network) const;
  /// What was sent in one dimension, over one network; without a value: in all of them.
  FlowLedger part(std::optional<Dimension> dim, std::optional<Network> network) const;
  /// The pairs that have payload, sorted.
  std::vector<std::pair<Dimension, Network>> parts() const;
  /// Joins ledgers of several ranks. A message is recorded by one rank only.
  void merge(const FlowLedger& other);
  bool operator==(const FlowLedger&) const = default;

  /// For exchange between ranks.
  std::vector<std::byte> serialize() const;
  static FlowLedger deserialize(const std::byte* data, std::size_t size);

 private:
  /// Payload messages of one kind; a ledger has few kinds, however many messages.
  struct MessageKey {
    Bytes bytes = 0;
    Dimension dim = Dimension::none;
    Network network = Network::scale_up;
    auto operator<=>(const MessageKey&) const = default;
  };

  std::vector<Flow> flows_;
  std::map<MessageKey, std::int64_t> messages_;
};

/// Payload flows of more than zero bytes as the network sees them: all bytes of one (source,
/// destination, channel), whatever the dimensions; sorted.
std::vector<Flow> network_flows(const std::vector<Flow>& flows);

/// Shannon entropy by bytes, bits: H = -sum (Bi/B) log2(Bi/B); +0 for a single share and without
/// bytes.
double entropy_bits(const std::vector<double>& bytes);

/// Entropy H of the flows, effective flows 2^H, evenness H/log2(flows) (NaN below 2 flows).
/// flow_p50 is the nearest rank: of an even number of flows the lower of the two in the middle. All
/// 0 without flows. Of network_flows(): channels of one pair are flows of their own.
struct FlowStatistics {
  std::int64_t flows = 0;
  Bytes bytes = 0;
  Bytes flow_p50 = 0, flow_max = 0;
  SizeHistogram sizes;
  double entropy_bits = 0, effective_flows = 0, evenness = 0;
  int fan_in_max = 0;  // most distinct sources of one destination
};
FlowStatistics statistics_of(const std::vector<Flow>& flows);

/// Entropy of the flows that one host sends, by host index: `hosts` has the host index of each
/// rank. Only hosts that send.
std::map<int, double> host_entropy_bits(const std::vector<Flow>& flows,
                                        const std::vector<int>& hosts);

/// The clock of a message's times: us of CLOCK_MONOTONIC.
double message_time_us();

class FlowRecorder {
 public:
  explicit FlowRecorder(std::size_t capacity = 1 << 14);
  /// Appends; grows (allocates) only when full. Recording can be switched off for iterations that
  /// need no ledger.
  void append(const Message& message) {
    if (enabled_) messages_.push_back(message);
  }
  void enable(bool on) { enabled_ = on; }
  /// Asked before a message's times are taken: nobody reads clocks for messages that are not kept.
  bool enabled() const { return enabled_; }
  void clear() { messages_.clear(); }
  const std::vector<Message>& messages() const { return messages_; }
  FlowLedger seal() const { return FlowLedger(messages_); }

 private:
  std::vector<Message> messages_;
  bool enabled_ = true;
};

}  // namespace weft
