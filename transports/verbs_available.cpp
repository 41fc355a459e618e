// Whether these ranks can use the verbs wire: asked before anything is set up.
#include <fmt/format.h>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"
#include "transports/transport.hpp"
#include "transports/verbs_device.hpp"

namespace weft {
namespace {

/// As much as the flow control of a few ranks takes: where this cannot be locked, nothing can.
constexpr std::size_t kTrialBytes = std::size_t{1} << 20;

std::string own_reason() {
  try {
    std::string why;
    const std::vector<VerbsPort> ports = list_ports(why);
    if (ports.empty()) return why.empty() ? "there is no RDMA device" : why;
    const bool any = std::ranges::any_of(ports, &VerbsPort::active);
    if (!any) choose_port(ports, "", -1, 0);  // which says what there is
    const auto device = open_verbs_device({}, 0);
    std::vector<std::byte> memory(kTrialBytes);
    register_memory(device->domain.get(), {memory.data(), memory.size()}, device->where());
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::string verbs_unavailable(Bootstrap& bootstrap) {
  return first_reason(bootstrap, own_reason());
}

}  // namespace weft
