#include "transports/verbs_udp_port.hpp"

#include <fmt/format.h>

#include "patterns/error.hpp"
#include "transports/verbs_objects.hpp"

#ifdef WEFT_MLX5DV
#include <infiniband/mlx5dv.h>
#endif

namespace weft {

void set_udp_source_port([[maybe_unused]] ibv_qp* queue_pair, const std::string& where,
                         [[maybe_unused]] int port) {
#ifdef WEFT_MLX5DV
  if (mlx5dv_is_supported(queue_pair->context->device)) {
    CHECK_VERBS(mlx5dv_modify_qp_udp_sport(queue_pair, static_cast<std::uint16_t>(port)), where);
    return;
  }
  fail_usage(
      fmt::format("--udp-sport: {} is no mlx5 device, whose driver alone sets ports; leave "
                  "it out, or use --flow-label",
                  where));
#else
  fail_usage(
      fmt::format("--udp-sport: {} cannot be told a port, this build has no mlx5dv; install "
                  "libibverbs-dev with mlx5dv.h and build again, or use --flow-label",
                  where));
#endif
}

}  // namespace weft
