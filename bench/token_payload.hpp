// A communication step without its payload: what remains is who waits for whom.
#pragma once

#include "transports/communicator.hpp"

namespace weft {

/// The same operation with one element where it had any number: per rank (all_gather,
/// reduce_scatter), in all (all_reduce, broadcast, a message), per pair (all_to_all_v, also where
/// counts are known at run time only). Its buffers are taken from `arena`; it leaves tensors
/// alone, so that steps that read them find what the last full iteration left. `size` and `rank` of
/// the group.
Operation with_token_payload(const Operation& operation, int size, int rank, Arena& arena);

/// Arena bytes that it takes at most, per member of the group of a collective; of one message.
inline constexpr Bytes kMostTokenBytes = 256;

}  // namespace weft
