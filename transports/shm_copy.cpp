#include "transports/shm_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "transports/shm_thresholds.hpp"

namespace weft {

#if defined(__AVX__)
namespace {

constexpr std::size_t kLine = 64;

/// `to` is aligned to a line, n a multiple of lines.
void stream_lines(std::byte* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += kLine) {
    const auto* source = reinterpret_cast<const __m256i*>(from + i);
    auto* destination = reinterpret_cast<__m256i*>(to + i);
    const __m256i low = _mm256_loadu_si256(source), high = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(destination, low);
    _mm256_stream_si256(destination + 1, high);
  }
  _mm_sfence();  // streaming stores are not ordered by the release store that follows
}

}  // namespace

void copy_streaming(std::byte* to, const std::byte* from, std::size_t n) {
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (n < head + kLine) {
    if (n > 0) std::memcpy(to, from, n);
    return;
  }
  const std::size_t lines = (n - head) / kLine * kLine;
  std::memcpy(to, from, head);
  stream_lines(to + head, from + head, lines);
  std::memcpy(to + head + lines, from + head + lines, n - head - lines);
}
#else
void copy_streaming(std::byte* to, const std::byte* from, std::size_t n) {
  if (n > 0) std::memcpy(to, from, n);
}
#endif

void copy_to_peer(std::byte* to, const std::byte* from, std::size_t n) {
  if (n >= static_cast<std::size_t>(kShmThresholds.streaming_put))
    return copy_streaming(to, from, n);
  if (n > 0) std::memcpy(to, from, n);
}

}  // namespace weft
