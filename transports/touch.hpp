// Reading memory for no other reason than to have it in the caches.
#pragma once

#include <cstddef>
#include <span>

namespace weft {

inline void touch(const void* data, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const auto* at = static_cast<const volatile char*>(data);
  for (std::size_t i = 0; i < bytes; i += kLine) static_cast<void>(at[i]);
  if (bytes > 0) static_cast<void>(at[bytes - 1]);
}

/// The elements of a container that has them in a row.
template <class Container>
void touch_all(const Container& container) {
  const auto bytes = std::as_bytes(std::span(container));
  touch(bytes.data(), bytes.size());
}

}  // namespace weft
