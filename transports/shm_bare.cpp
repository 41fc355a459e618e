// Transport 'bare': what the machine can do at best, as rows beside the others. The moves of shm's
// native forms without a single flag.
#include <fmt/format.h>

#include "patterns/error.hpp"
#include "transports/shm_wire.hpp"

namespace weft {

std::unique_ptr<Session> make_bare_session(Bootstrap& bootstrap, Arena& arena,
                                           const SessionOptions& options) {
  const std::string& name = options.algorithm;
  if (!name.empty() && name != "memcpy" && name != "stream") {
    fail_usage(fmt::format("transport 'bare' copies by 'memcpy' or 'stream', not by '{}'", name));
  }
  SessionOptions native = options;
  native.algorithm = kNativeAlgorithm;
  return make_scheduled_session(
      bootstrap, arena,
      make_shm_wire(bootstrap, arena, options, {.bare = true, .streaming = name == "stream"}),
      native);
}

}  // namespace weft
