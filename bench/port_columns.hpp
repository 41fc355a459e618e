// A row's port counters, and whether they agree with what was posted.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bench/port_meter.hpp"
#include "bench/row.hpp"
#include "transports/flow.hpp"

namespace weft {

/// Which counters see a transport's bytes.
enum class PortsUsed : std::uint8_t {
  none,   // memory of one host
  rdma,   // RDMA ports alone
  either  // a library's choice: RDMA ports, or TCP
};
PortsUsed ports_used(std::string_view transport);

/// Over all hosts. A figure is known where it is known of everything that may have carried the
/// bytes: all active RDMA ports of all hosts, and where TCP is possible the kernel's too for what
/// it counts. With several ports nobody knows which of them carried the bytes: all count.
struct PortSum {
  std::array<Counted, kPortFigures> figures;
  std::string sources;  // "h1: rxe0:1 hw_counters; h2: rxe0:1 hw_counters"; one host without name
  std::string note;     // why figures are blank
  const Counted& operator[](PortFigure figure) const {
    return figures[static_cast<std::size_t>(figure)];
  }
};
PortSum sum_of_ports(const std::vector<HostPorts>& hosts, PortsUsed used);

/// What the ports send for it, all hosts together: frames as in bench/packets.hpp, each message
/// with an immediate and one acknowledgement.
struct PortExpectation {
  std::int64_t packets = 0;
  Bytes bytes = 0;
};
/// Of what was posted, to the work request.
PortExpectation expected_on_ports(const WorkPosted& posted);
/// Of what one iteration records, payload and control; messages of a control flow are taken to be
/// of equal size. Signals without bytes are not recorded.
PortExpectation expected_on_ports(const FlowLedger& iteration, Bytes mtu, std::int64_t iterations);

/// (counted - expected) / expected, of bytes where ports count them, else of packets; NaN where
/// neither is known or nothing is expected.
double port_difference(const PortSum& sum, const PortExpectation& expected);

/// What was counted while a cell was timed.
struct PortRecord {
  std::vector<HostPorts> hosts;
  std::int64_t iterations = 0;  // timed, and those in front of a block
  WorkPosted posted{};          // in these, all ranks; nothing: not known
};
/// Fills the columns of what happened on the ports. The row has transport and phase. What should
/// have been counted is made of `record.posted`, or else of `iteration`: the ledger of one where
/// the transport records it, else null.
void add_port_columns(Row& row, const PortRecord& record, const FlowLedger* iteration, Bytes mtu);

/// For the report: cells in which packets were sent again or dropped; empty where there are none.
/// `name_of` says which cell a row is.
std::string losses_text(const std::vector<Row>& rows, std::string (*name_of)(const Row&));

}  // namespace weft
