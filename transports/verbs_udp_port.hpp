// UDP source ports by hand, where rdma-core and the device have them (mlx5).
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace weft {

/// Throws Error(usage) where it is not possible, with the reason.
void set_udp_source_port(ibv_qp* queue_pair, const std::string& where, int port);

}  // namespace weft
