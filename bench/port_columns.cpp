#include "bench/port_columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/packets.hpp"

namespace weft {
namespace {

constexpr std::size_t kCellsNamed = 4;
constexpr std::size_t kReasonsTold = 3;

bool counts_for(const PortCounts& port, PortsUsed used) {
  return port.rdma || used == PortsUsed::either;
}

/// Adds a port; one that counts nothing of a kind makes it unknown where others count it. Only TCP
/// need not know what only RDMA has.
void add_port(PortSum& sum, std::vector<std::string>& reasons, const PortCounts& port,
              const std::string& name) {
  for (std::size_t f = 0; f < kPortFigures; ++f) {
    Counted figure = port.figures[f];
    if (!figure.why.empty()) {
      figure.why = fmt::format("{}: {}", name, figure.why);
      reasons.push_back(figure.why);
    }
    sum.figures[f] += figure;
  }
}

/// Some RDMA port counts it, and another does not.
bool counted_by_some(const std::vector<HostPorts>& hosts, std::size_t figure) {
  int with = 0, without = 0;
  for (const HostPorts& host : hosts) {
    bool any = false;
    for (const PortCounts& port : host.ports) {
      if (!port.rdma) continue;
      any = true;
      port.figures[figure].absent() ? ++without : ++with;
    }
    without += !any;  // a host without RDMA, beside others with it
  }
  return with > 0 && without > 0;
}

std::string note_of(const PortSum& sum, std::vector<std::string> reasons, bool any_rdma) {
  std::vector<std::string_view> uncounted;
  for (std::size_t f = 0; f < kPortFigures; ++f) {
    if (sum.figures[f].absent()) uncounted.push_back(to_string(static_cast<PortFigure>(f)));
  }
  if (const std::size_t all = reasons.size(); all > kReasonsTold) {
    reasons.resize(kReasonsTold);
    reasons.push_back(fmt::format("and {} more", all - kReasonsTold));
  }
  if (!any_rdma) {
    reasons.emplace_back("no active RDMA port");
  } else if (!uncounted.empty()) {
    reasons.push_back(fmt::format("not counted here: {}", fmt::join(uncounted, " ")));
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

void set_counted(Row& row, PortFigure figure, const Counted& counted) {
  if (counted.known) row.set(to_string(figure), static_cast<std::int64_t>(counted.value));
}

}  // namespace

PortsUsed ports_used(std::string_view transport) {
  for (const std::string_view inside : {"shm", "bare", "dma", "nvlink"}) {
    if (transport == inside) return PortsUsed::none;
  }
  return transport == "verbs" ? PortsUsed::rdma : PortsUsed::either;
}

PortSum sum_of_ports(const std::vector<HostPorts>& hosts, PortsUsed used) {
  PortSum sum;
  std::vector<std::string> reasons, sources;
  bool any_rdma = false;
  for (const HostPorts& host : hosts) {
    for (const PortCounts& port : host.ports) {
      if (!counts_for(port, used)) continue;
      any_rdma = any_rdma || port.rdma;
      sources.push_back(hosts.size() > 1 ? fmt::format("{}: {}", host.host, port.source)
                                         : port.source);
      add_port(sum, reasons, port, sources.back());
    }
  }
  for (std::size_t f = 0; f < kPortFigures; ++f) {
    if (!counted_by_some(hosts, f)) continue;
    Counted partial;
    partial.why =
        fmt::format("{} is counted by some ports only", to_string(static_cast<PortFigure>(f)));
    reasons.push_back(partial.why);
    sum.figures[f] += partial;
  }
  sum.sources = fmt::format("{}", fmt::join(sources, "; "));
  sum.note = note_of(sum, std::move(reasons), any_rdma);
  return sum;
}

PortExpectation expected_on_ports(const WorkPosted& posted) {
  // Frames of a packet and of a message without payload, as packets.hpp counts them.
  const PacketHistogram one = [] {
    SizeHistogram bare;
    bare.add(4);
    return packets_of(bare, 4);
  }();
  const Bytes first = one.data.total() - 4, acknowledgement = one.acks.total();
  const Bytes later = packets_of(8, 4).wire_bytes - 8 - first;  // a second packet adds this
  return {posted.packets + posted.messages, posted.bytes +
                                                posted.messages * (first + acknowledgement) +
                                                (posted.packets - posted.messages) * later};
}

PortExpectation expected_on_ports(const FlowLedger& iteration, Bytes mtu, std::int64_t iterations) {
  SizeHistogram messages = iteration.messages();
  for (const Flow& flow : iteration.flows()) {
    if (flow.kind != MessageKind::control || flow.messages <= 0) continue;
    const Bytes each = flow.bytes / flow.messages, larger = flow.bytes % flow.messages;
    messages.add(each + 1, larger);
    messages.add(each, flow.messages - larger);
  }
  const PacketHistogram packets = packets_of(messages, mtu);
  return {(packets.data.count() + packets.acks.count()) * iterations,
          (packets.data.total() + packets.acks.total()) * iterations};
}

double port_difference(const PortSum& sum, const PortExpectation& expected) {
  const auto relative = [](const Counted& counted, std::int64_t wanted) {
    return wanted > 0 ? static_cast<double>(counted.value) / static_cast<double>(wanted) - 1
                      : std::numeric_limits<double>::quiet_NaN();
  };
  if (const Counted& bytes = sum[PortFigure::tx_bytes]; bytes.known)
    return relative(bytes, expected.bytes);
  const Counted& packets = sum[PortFigure::tx_packets];
  return relative(packets, packets.known ? expected.packets : 0);
}

void add_port_columns(Row& row, const PortRecord& record, const FlowLedger* iteration, Bytes mtu) {
  const PortsUsed used = ports_used(row.get("transport"));
  if (used == PortsUsed::none || row.get("phase") == "compute") {
    row.set("counter_note",
            used == PortsUsed::none ? "no port carries its bytes" : "nothing is sent");
    return;
  }
  const PortSum sum = sum_of_ports(record.hosts, used);
  for (std::size_t f = 0; f < kPortFigures; ++f)
    set_counted(row, static_cast<PortFigure>(f), sum.figures[f]);
  row.set("port_iterations", record.iterations);
  row.set("port_source", sum.sources);
  row.set("counter_note", sum.note);
  // Of a library's bytes nobody knows which port they take.
  if (used != PortsUsed::rdma || !(iteration || record.posted.messages > 0)) return;
  const PortExpectation expected = record.posted.messages > 0
                                       ? expected_on_ports(record.posted)
                                       : expected_on_ports(*iteration, mtu, record.iterations);
  row.set("port_tx_expected_bytes", expected.bytes);
  row.set("port_tx_expected_packets", expected.packets);
  row.set("port_difference", port_difference(sum, expected));
}

std::string losses_text(const std::vector<Row>& rows, std::string (*name_of)(const Row&)) {
  std::vector<std::string> cells;
  for (const Row& row : rows) {
    std::vector<std::string> happened;
    for (const auto& [column, what] :
         {std::pair{"retransmits", "retransmissions"}, {"discards", "packets dropped"}}) {
      if (row.number(column) > 0) happened.push_back(fmt::format("{} {}", row.get(column), what));
    }
    if (!happened.empty())
      cells.push_back(fmt::format("{}: {}", name_of(row), fmt::join(happened, ", ")));
  }
  if (cells.empty()) return {};
  const std::size_t all = cells.size(), more = all - std::min(all, kCellsNamed);
  cells.resize(all - more);
  return fmt::format(
      "Packets were sent again or dropped in {} of {} cells, and their times include that: {}{}. "
      "The column port_source says who counted.",
      all, rows.size(), fmt::join(cells, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
}

}  // namespace weft
