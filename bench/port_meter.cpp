#include "bench/port_meter.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

using nlohmann::json;

json ports_to_json(const std::vector<PortCounts>& ports) {
  json all = json::array();
  for (const PortCounts& port : ports) {
    json figures = json::array();
    for (const Counted& figure : port.figures)
      figures.push_back({figure.value, figure.known, figure.why});
    all.push_back({port.source, port.rdma, figures});
  }
  return all;
}

std::vector<PortCounts> ports_from_json(const json& all) {
  std::vector<PortCounts> ports;
  for (const json& one : all) {
    PortCounts& port = ports.emplace_back();
    port.source = one.at(0);
    port.rdma = one.at(1);
    for (std::size_t f = 0; f < kPortFigures; ++f) {
      const json& figure = one.at(2).at(f);
      port.figures[f] = {figure.at(0), figure.at(1), figure.at(2)};
    }
  }
  return ports;
}

}  // namespace

WorkPosted& WorkPosted::operator+=(const WorkPosted& other) {
  messages += other.messages;
  packets += other.packets;
  bytes += other.bytes;
  return *this;
}

WorkPosted WorkPosted::operator-(const WorkPosted& other) const {
  return {messages - other.messages, packets - other.packets, bytes - other.bytes};
}

WorkPosted work_of(const std::vector<QueuePairFacts>& pairs) {
  WorkPosted work;
  for (const QueuePairFacts& pair : pairs) {
    // A READ's one packet goes the way of an acknowledgement, which it has none of.
    work += {pair.sent.messages, pair.sent.packets - pair.read.messages + pair.read.packets,
             pair.sent.posted + pair.read.posted};
  }
  return work;
}

WorkPosted gather_work(Bootstrap& bootstrap, const WorkPosted& mine) {
  WorkPosted all;
  for (const auto& bytes : bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    WorkPosted one;
    std::memcpy(&one, bytes.data(), sizeof one);
    all += one;
  }
  return all;
}

PortMeter::PortMeter(const Bootstrap& bootstrap, const PortRoots& roots) {
  const std::vector<Rank> leaders = bootstrap.host_leaders();
  if (std::ranges::find(leaders, bootstrap.rank()) != leaders.end()) counters_.emplace(roots);
}

void PortMeter::start() {
  if (counters_) counters_->start();
}

std::vector<PortCounts> PortMeter::lap() {
  return counters_ ? counters_->lap() : std::vector<PortCounts>();
}

std::vector<HostPorts> gather_ports(Bootstrap& bootstrap, const std::vector<PortCounts>& mine) {
  // Names of devices may hold bytes that are no UTF-8; they are replaced, for nothing here may
  // throw.
  const std::string text = ports_to_json(mine).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::vector<std::string> texts = bootstrap.all_gather(text);
  std::vector<HostPorts> hosts;
  for (const Rank leader : bootstrap.host_leaders()) {
    const auto at = static_cast<std::size_t>(leader);
    hosts.push_back({real_host(bootstrap.hosts()[at]), ports_from_json(json::parse(texts[at]))});
  }
  return hosts;
}

}  // namespace weft
