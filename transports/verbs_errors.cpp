#include "transports/verbs_errors.hpp"

#include <fmt/format.h>

namespace weft {
namespace {

/// The consequence, where the library's own words name only the mechanism.
const char* meaning(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer did not acknowledge";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive posted";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return "memory outside of what was registered";
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer's queue pair refused the request";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair went into error before";
    default:
      return "the device gave up";
  }
}

}  // namespace

std::string completion_text(ibv_wc_status status) {
  return fmt::format("{} ({}, status {})", meaning(status), ibv_wc_status_str(status),
                     static_cast<int>(status));
}

std::string completion_remedy(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "see whether the peer's process and host live, and whether the network between these "
             "two ports carries UDP 4791 (RoCE), or raise --ack-timeout";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "raise --rnr-retries";
    case IBV_WC_WR_FLUSH_ERR:
      return "the peer or the device has ended it: look at the peer's own message and the kernel's "
             "log of both hosts";
    default:
      return "look at the kernel's log of both hosts";
  }
}

}  // namespace weft
