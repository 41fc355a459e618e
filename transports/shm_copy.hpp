// The copy of the shm wire.
#pragma once

#include <cstddef>

namespace weft {

/// From this size on a put goes past the caches: the data do not fit beside the reader's own
/// anyway, and plain stores would first read every line they overwrite.
inline constexpr std::size_t kStreamingBytes = std::size_t{4} << 20;

/// memcpy, with streaming stores from kStreamingBytes on. Done, for every observer of a later
/// release store, on return.
void copy_to_peer(std::byte* to, const std::byte* from, std::size_t n);

/// memcpy past the caches, whatever the size. Done as above on return.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t n);

}  // namespace weft
