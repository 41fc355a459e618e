#include "bench/link_use.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "bench/packets.hpp"

namespace weft {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Bytes in and out of each end.
struct Load {
  double out = 0, in = 0;
  double most() const { return std::max(out, in); }
};

double most_of(const std::map<int, Load>& loads) {
  double most = 0;
  for (const auto& [end, load] : loads) most = std::max(most, load.most());
  return most;
}

PacketHistogram packets_of(const Flow& flow, Bytes mtu) {
  SizeHistogram messages;  // as equal as whole bytes allow
  const Bytes each = flow.bytes / flow.messages, larger = flow.bytes % flow.messages;
  messages.add(each + 1, larger);
  messages.add(each, flow.messages - larger);
  return weft::packets_of(messages, mtu);
}

const NetworkInterface* fastest(const HostInventory& host) {
  const auto found = std::ranges::max_element(host.interfaces, {}, &NetworkInterface::link_gbps);
  return found == host.interfaces.end() || found->link_gbps <= 0 ? nullptr : &*found;
}

double share(double bytes, double time_us, double GBps) {
  return bytes > 0 && time_us > 0 && GBps > 0 ? bytes / (time_us * GBps * 1e3) : kNaN;
}

}  // namespace

LinkRates link_rates(double given_gbps, const std::vector<HostInventory>& inventory,
                     double copy_GBps) {
  LinkRates rates{given_gbps, "--link-rate", copy_GBps};
  if (given_gbps > 0) return rates;
  rates = {0, "", copy_GBps};
  std::vector<std::string> names;
  for (const HostInventory& host : inventory)
    names.push_back(host.host.substr(0, host.host.find('/')));
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() < 2) return rates;
  for (const HostInventory& host : inventory) {
    const NetworkInterface* interface = fastest(host);
    if (!interface) return {0, "", copy_GBps};  // a host without a known rate may be the slowest
    if (rates.scale_out_gbps > 0 && interface->link_gbps >= rates.scale_out_gbps) continue;
    rates.scale_out_gbps = interface->link_gbps;
    rates.scale_out_from =
        fmt::format("{} {} on {}", interface->rate_source, interface->name, host.host);
  }
  return rates;
}

LinkBytes busiest_links(const FlowLedger& ledger, const std::vector<int>& hosts, Bytes mtu) {
  std::map<int, Load> ranks, cables;
  for (const Flow& flow : ledger.flows()) {
    if (flow.kind != MessageKind::payload || flow.messages <= 0) continue;
    if (flow.network == Network::scale_up) {
      ranks[flow.source].out += static_cast<double>(flow.bytes);
      ranks[flow.destination].in += static_cast<double>(flow.bytes);
    } else if (flow.network == Network::scale_out) {
      const PacketHistogram packets = packets_of(flow, mtu);
      const auto data = static_cast<double>(link_bytes(packets.data));
      const auto acks = static_cast<double>(link_bytes(packets.acks));
      Load& from = cables[hosts.at(static_cast<std::size_t>(flow.source))];
      Load& to = cables[hosts.at(static_cast<std::size_t>(flow.destination))];
      from.out += data;
      from.in += acks;
      to.in += data;
      to.out += acks;
    }
  }
  return {most_of(ranks), most_of(cables)};
}

LinkUse link_use(const LinkBytes& bytes, double time_us, const LinkRates& rates) {
  LinkUse use{share(bytes.scale_up, time_us, rates.copy_GBps),
              share(bytes.scale_out, time_us, rates.scale_out_gbps / 8),
              kNaN,
              {}};
  use.busiest = std::fmax(use.scale_up, use.scale_out);  // NaN only where both are
  std::vector<std::string> sources;
  if (!std::isnan(use.scale_up)) {
    sources.push_back(fmt::format("scale_up: measured copy {:.4g} GB/s a rank{}", rates.copy_GBps,
                                  use.scale_up > 1 ? " (exceeded: the caches are faster)" : ""));
  }
  if (!std::isnan(use.scale_out)) {
    sources.push_back(fmt::format(
        "scale_out: {} {:.4g} Gbit/s{}", rates.scale_out_from, rates.scale_out_gbps,
        use.scale_out > 1 ? " (exceeded: bytes took another way or the rate is wrong)" : ""));
  }
  use.rate_source = fmt::format("{}", fmt::join(sources, "; "));
  return use;
}

}  // namespace weft
