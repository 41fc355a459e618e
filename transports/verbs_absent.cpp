// The verbs transport of a build without libibverbs: it says so.
#include "patterns/error.hpp"
#include "transports/transport.hpp"

namespace weft {

std::string verbs_unavailable(Bootstrap&) {
  return "built without libibverbs; install libibverbs-dev and build again";
}

std::unique_ptr<Transport> make_verbs_transport(Bootstrap& bootstrap, Arena&,
                                                const SessionOptions&) {
  fail_usage("transport 'verbs' is not available here: " + verbs_unavailable(bootstrap));
}

}  // namespace weft
