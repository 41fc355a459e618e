// Hands file descriptors to the ranks of one host, over unix sockets (SCM_RIGHTS). Not through
// /proc/<pid>/fd: ranks in pid namespaces may all be process 1, and yama may forbid it.
#pragma once

#include <span>
#include <vector>

#include "transports/bootstrap.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

enum class SocketPlace : std::uint8_t {
  abstract,   // no file at all; seen inside one network namespace
  temporary,  // in $TMPDIR, removed as soon as all are connected
};

/// Gives `mine` to every other rank; returns theirs by rank (own entry empty). Tries the places in
/// turn until all ranks reach each other; a rank that does not come within a minute is given up.
/// Collective; throws Error(usage) on all ranks.
std::vector<std::vector<Descriptor>> exchange_descriptors(Bootstrap& bootstrap,
                                                          std::span<const int> mine,
                                                          std::span<const SocketPlace> places = {});

/// The descriptor that rank `from` of this host gives as `mine`; its own: a copy. Collective: every
/// rank names one, and the ranks of several hosts may do it at once. Throws Error(usage) on all
/// ranks.
Descriptor fetch_descriptor(Bootstrap& bootstrap, int mine, Rank from);

}  // namespace weft
