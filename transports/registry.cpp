// The list of transports. Explicit: linkers drop entries that register themselves.
#include <fmt/format.h>

#include "patterns/error.hpp"
#include "transports/communicator.hpp"
#include "transports/schedule.hpp"
#include "transports/transport.hpp"

namespace weft {
namespace {

TransportInfo mpi() {
  return {.name = "mpi",
          .summary = "MPI's own collectives, algorithms of its choice; the baseline",
          .algorithms = {"default"},
          .unavailable = mpi_unavailable,
          .open = make_mpi_session};
}

/// A wire that runs schedules, and forms of its own by default.
TransportInfo wire(std::string_view name, std::string_view summary,
                   std::string (*unavailable)(Bootstrap&),
                   std::unique_ptr<Transport> (*make)(Bootstrap&, Arena&, const SessionOptions&)) {
  TransportInfo info{
      .name = name,
      .summary = summary,
      .algorithms = {kNativeAlgorithm},
      .unavailable = unavailable,
      .open = [make](Bootstrap& bootstrap, Arena& arena, const SessionOptions& options) {
        return make_scheduled_session(bootstrap, arena, make(bootstrap, arena, options), options);
      }};
  for (const Algorithm& algorithm : algorithms()) info.algorithms.push_back(algorithm.name);
  return info;
}

TransportInfo shm() {
  return wire("shm", "loads and stores through shared memory, inside one host", shm_unavailable,
              make_shm_transport);
}

TransportInfo verbs() {
  return wire("verbs", "raw RDMA: WRITEs on reliable queue pairs, by libibverbs", verbs_unavailable,
              make_verbs_transport);
}

TransportInfo bare() {
  return {.name = "bare",
          .summary = "the machine's limit: the moves of shm without its flags; single sweeps only",
          .algorithms = {"memcpy", "stream"},
          .unavailable = shm_unavailable,
          .open = make_bare_session,
          .hidden = true};
}

}  // namespace

const std::vector<TransportInfo>& transports() {
  static const std::vector<TransportInfo> list{mpi(), shm(), verbs(), bare()};
  return list;
}

const TransportInfo& find_transport(std::string_view name) {
  std::string known;
  for (const TransportInfo& info : transports()) {
    if (info.name == name) return info;
    if (!info.hidden) known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  }
  fail_usage(fmt::format("there is no transport '{}'; known: {}", name, known));
}

}  // namespace weft
