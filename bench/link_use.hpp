// How full links are: bytes of the busiest link over what it could carry in that time.
#pragma once

#include <string>
#include <vector>

#include "transports/fabric.hpp"
#include "transports/flow.hpp"

namespace weft {

/// Rates of links, and where they come from. 0: unknown.
struct LinkRates {
  double scale_out_gbps = 0;   // of a host's link to the network, each direction
  std::string scale_out_from;  // "--link-rate", "sysfs eth0 on host a"
  double copy_GBps = 0;        // of a rank, inside a host: measured memory copy
};

/// `given_gbps` > 0 counts for all hosts; else, where ranks run on several real hosts, the fastest
/// interface of the host whose fastest is slowest. Virtual hosts have no link of their own, so
/// without a given rate theirs is unknown.
LinkRates link_rates(double given_gbps, const std::vector<HostInventory>& inventory,
                     double copy_GBps);

/// Bytes of the busiest link, per iteration. scale_up: payload that the busiest rank sends or
/// receives, whichever is more. scale_out: what the cable of the busiest host carries in its
/// busier direction, as RoCEv2 frames at `mtu` with preambles, gaps and acknowledgements; messages
/// of one flow are taken to be of equal size.
struct LinkBytes {
  double scale_up = 0, scale_out = 0;
};
LinkBytes busiest_links(const FlowLedger& ledger, const std::vector<int>& hosts, Bytes mtu);

/// Shares of the links' time; NaN where the rate is unknown, nothing is sent, or time is. Above 1
/// is possible inside a host, and `rate_source` says why: the copy limit is that of memory, and
/// caches are faster.
struct LinkUse {
  double scale_up = 0, scale_out = 0, busiest = 0;
  std::string rate_source;
};
LinkUse link_use(const LinkBytes& bytes, double time_us, const LinkRates& rates);

}  // namespace weft
