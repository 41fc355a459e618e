// The copy of the shm wire.
#pragma once

#include <cstddef>

namespace weft {

/// memcpy, with streaming stores from kShmThresholds.streaming_put on. Done, for every observer of
/// a later release store, on return.
void copy_to_peer(std::byte* to, const std::byte* from, std::size_t n);

/// memcpy past the caches, whatever the size. Done as above on return.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t n);

}  // namespace weft
