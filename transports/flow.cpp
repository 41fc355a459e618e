#include "transports/flow.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>

#include "patterns/error.hpp"

namespace weft {
namespace {

bool by_key(const Flow& a, const Flow& b) { return a.key() < b.key(); }

/// Sorts and adds up flows of equal key.
void combine(std::vector<Flow>& flows) {
  std::sort(flows.begin(), flows.end(), by_key);
  std::size_t kept = 0;
  for (const Flow& flow : flows) {
    if (kept > 0 && flows[kept - 1].key() == flow.key()) {
      flows[kept - 1].messages += flow.messages;
      flows[kept - 1].bytes += flow.bytes;
    } else {
      flows[kept++] = flow;
    }
  }
  flows.resize(kept);
}

class Writer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), first, first + sizeof value);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  Reader(const std::byte* data, std::size_t size) : data_(data), left_(size) {}

  template <class T>
  T get() {
    if (left_ < sizeof(T)) cut_short();
    T value;
    std::memcpy(&value, data_, sizeof value);
    data_ += sizeof value;
    left_ -= sizeof value;
    return value;
  }
  /// A count of items of at least `item` bytes each, so that a damaged count cannot ask for more
  /// memory than came.
  std::size_t count(std::size_t item) {
    const auto n = get<std::uint64_t>();
    if (n > left_ / item) cut_short();
    return static_cast<std::size_t>(n);
  }
  std::size_t left() const { return left_; }

 private:
  [[noreturn]] static void cut_short() {
    fail(ExitCode::failed,
         "a flow ledger of another rank is cut short; check that all ranks run the same version");
  }
  const std::byte* data_;
  std::size_t left_;
};

void write(Writer& writer, const Flow& flow) {
  writer.put(flow.source);
  writer.put(flow.destination);
  writer.put(flow.channel);
  writer.put(flow.kind);
  writer.put(flow.dim);
  writer.put(flow.network);
  writer.put(flow.messages);
  writer.put(flow.bytes);
}

Flow read_flow(Reader& reader) {
  Flow flow;
  flow.source = reader.get<Rank>();
  flow.destination = reader.get<Rank>();
  flow.channel = reader.get<std::uint16_t>();
  flow.kind = reader.get<MessageKind>();
  flow.dim = reader.get<Dimension>();
  flow.network = reader.get<Network>();
  flow.messages = reader.get<std::int64_t>();
  flow.bytes = reader.get<Bytes>();
  return flow;
}

constexpr std::size_t kFlowBytes = 2 * sizeof(Rank) + sizeof(std::uint16_t) + 3 + 2 * sizeof(Bytes);
constexpr std::size_t kMessageKindBytes = 2 * sizeof(Bytes) + 2;

}  // namespace

std::string_view to_string(Network network) {
  switch (network) {
    case Network::scale_up:
      return "scale_up";
    case Network::scale_out:
      return "scale_out";
    case Network::other:
      break;
  }
  return "other";
}

FlowLedger::FlowLedger(std::vector<Message> messages) {
  for (const Message& m : messages) {
    if (m.bytes <= 0) continue;
    flows_.push_back(
        {m.source, m.destination, m.channel, m.kind, m.dim, m.network, /*messages=*/1, m.bytes});
    if (m.kind == MessageKind::payload) ++messages_[{m.bytes, m.dim, m.network}];
  }
  combine(flows_);
}

Bytes FlowLedger::bytes(MessageKind kind) const {
  Bytes sum = 0;
  for (const Flow& flow : flows_) sum += flow.kind == kind ? flow.bytes : 0;
  return sum;
}

Bytes FlowLedger::bytes(MessageKind kind, Network network) const {
  Bytes sum = 0;
  for (const Flow& flow : flows_)
    sum += flow.kind == kind && flow.network == network ? flow.bytes : 0;
  return sum;
}

std::vector<Bytes> FlowLedger::message_sizes() const {
  std::vector<Bytes> sizes;
  for (const auto& [key, count] : messages_) {
    sizes.insert(sizes.end(), static_cast<std::size_t>(count), key.bytes);
  }
  return sizes;
}

SizeHistogram FlowLedger::messages() const {
  SizeHistogram sizes;
  for (const auto& [key, count] : messages_) sizes.add(key.bytes, count);
  return sizes;
}

FlowLedger FlowLedger::part(std::optional<Dimension> dim, std::optional<Network> network) const {
  const auto belongs = [&](const auto& item) {
    return (!dim || item.dim == *dim) && (!network || item.network == *network);
  };
  FlowLedger result;
  std::copy_if(flows_.begin(), flows_.end(), std::back_inserter(result.flows_), belongs);
  for (const auto& [key, count] : messages_) {
    if (belongs(key)) result.messages_.emplace(key, count);
  }
  return result;
}

std::vector<std::pair<Dimension, Network>> FlowLedger::parts() const {
  std::vector<std::pair<Dimension, Network>> parts;
  for (const auto& [key, count] : messages_) parts.emplace_back(key.dim, key.network);
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

void FlowLedger::merge(const FlowLedger& other) {
  flows_.reserve(flows_.size() + other.flows_.size());  // keeps self-merging valid
  std::copy_n(other.flows_.begin(), other.flows_.size(), std::back_inserter(flows_));
  combine(flows_);
  for (const auto& [key, count] : other.messages_) messages_[key] += count;
}

std::vector<std::byte> FlowLedger::serialize() const {
  Writer writer;
  writer.put<std::uint64_t>(flows_.size());
  for (const Flow& flow : flows_) write(writer, flow);
  writer.put<std::uint64_t>(messages_.size());
  for (const auto& [key, count] : messages_) {
    writer.put(key.bytes);
    writer.put(key.dim);
    writer.put(key.network);
    writer.put(count);
  }
  return writer.take();
}

FlowLedger FlowLedger::deserialize(const std::byte* data, std::size_t size) {
  Reader reader(data, size);
  FlowLedger ledger;
  const std::size_t flows = reader.count(kFlowBytes);
  for (std::size_t i = 0; i < flows; ++i) ledger.flows_.push_back(read_flow(reader));
  const std::size_t kinds = reader.count(kMessageKindBytes);
  for (std::size_t i = 0; i < kinds; ++i) {
    MessageKey key;
    key.bytes = reader.get<Bytes>();
    key.dim = reader.get<Dimension>();
    key.network = reader.get<Network>();
    ledger.messages_[key] += reader.get<std::int64_t>();
  }
  if (reader.left() != 0)
    fail(ExitCode::failed,
         "a flow ledger of another rank has bytes left over; check that all ranks run the same "
         "version");
  return ledger;
}

namespace {

/// Most distinct sources of one destination.
int fan_in_of(const std::vector<Flow>& flows) {
  std::vector<std::pair<Rank, Rank>> edges;  // (destination, source)
  for (const Flow& flow : flows) edges.emplace_back(flow.destination, flow.source);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  int most = 0, run = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    run = i > 0 && edges[i].first == edges[i - 1].first ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

std::vector<double> sizes_of(const std::vector<Flow>& flows) {
  std::vector<double> sizes;
  for (const Flow& flow : flows) sizes.push_back(static_cast<double>(flow.bytes));
  return sizes;
}

}  // namespace

std::vector<Flow> network_flows(const std::vector<Flow>& flows) {
  std::vector<Flow> result;
  for (Flow flow : flows) {
    if (flow.kind != MessageKind::payload || flow.bytes <= 0) continue;
    flow.dim = Dimension::none;
    result.push_back(flow);
  }
  combine(result);
  return result;
}

double entropy_bits(const std::vector<double>& bytes) {
  const double total = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  double bits = 0;
  for (double part : bytes) {
    if (part > 0) bits += part / total * std::log2(total / part);  // never -0
  }
  return bits;
}

FlowStatistics statistics_of(const std::vector<Flow>& flows) {
  const std::vector<Flow> counted = network_flows(flows);
  FlowStatistics result;
  for (const Flow& flow : counted) result.sizes.add(flow.bytes);
  result.bytes = result.sizes.total();
  result.flows = result.sizes.count();
  result.evenness = std::numeric_limits<double>::quiet_NaN();
  if (counted.empty()) return result;
  result.flow_p50 = result.sizes.percentile(0.5);
  result.flow_max = result.sizes.max();
  result.entropy_bits = entropy_bits(sizes_of(counted));
  result.effective_flows = std::exp2(result.entropy_bits);
  if (result.flows >= 2)
    result.evenness = result.entropy_bits / std::log2(static_cast<double>(result.flows));
  result.fan_in_max = fan_in_of(counted);
  return result;
}

std::map<int, double> host_entropy_bits(const std::vector<Flow>& flows,
                                        const std::vector<int>& hosts) {
  std::map<int, std::vector<double>> sent;
  for (const Flow& flow : network_flows(flows)) {
    sent[hosts.at(static_cast<std::size_t>(flow.source))].push_back(
        static_cast<double>(flow.bytes));
  }
  std::map<int, double> bits;
  for (const auto& [host, sizes] : sent) bits[host] = entropy_bits(sizes);
  return bits;
}

double message_time_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

FlowRecorder::FlowRecorder(std::size_t capacity) { messages_.reserve(capacity); }

}  // namespace weft
