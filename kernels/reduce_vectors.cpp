#include "kernels/reduce_vectors.hpp"

#include <cstdint>

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#endif

namespace weft {

#if defined(__AVX2__) && defined(__F16C__)
namespace {

constexpr Index kLanes = 8;
constexpr Index kBlock = 4;  // vectors at a time: loops over pointers weigh little then

struct F32 {
  static constexpr Index kBytes = 4;
  static __m256 load(const std::byte* at) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
  static __m256 stored(__m256 x) { return x; }
  static void store(std::byte* at, __m256 x) { _mm256_storeu_ps(reinterpret_cast<float*>(at), x); }
  static void stream(std::byte* at, __m256 x) { _mm256_stream_ps(reinterpret_cast<float*>(at), x); }
};

/// Stored as 8 numbers of 16 bits.
struct Half {
  static constexpr Index kBytes = 2;
  static void store(std::byte* at, __m128i x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), x);
  }
  static void stream(std::byte* at, __m128i x) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(at), x);
  }
  static __m128i bits(const std::byte* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }
};

struct F16 : Half {
  static __m256 load(const std::byte* at) { return _mm256_cvtph_ps(bits(at)); }
  static __m128i stored(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
};

struct Bf16 : Half {
  static __m256 load(const std::byte* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits(at)), 16));
  }
  /// To nearest even; a NaN keeps its upper bits and becomes quiet. As f32_to_bf16().
  static __m128i stored(__m256 x) {
    const __m256i value = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(value, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(value, half), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_packus_epi32(words, words);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
};

/// kBlock vectors from byte `at` on.
template <class T, bool Streaming>
inline void sum_block(std::byte* const* outs, int out_count, const std::byte* const* sources,
                      int count, Index at) {
  constexpr Index kStep = kLanes * T::kBytes;
  __m256 sum[kBlock];
  for (Index v = 0; v < kBlock; ++v) sum[v] = T::load(sources[0] + at + v * kStep);
  for (int k = 1; k < count; ++k) {
    const std::byte* source = sources[k] + at;
    for (Index v = 0; v < kBlock; ++v) sum[v] = _mm256_add_ps(sum[v], T::load(source + v * kStep));
  }
  decltype(T::stored(sum[0])) result[kBlock];
  for (Index v = 0; v < kBlock; ++v) result[v] = T::stored(sum[v]);
  for (int o = 0; o < out_count; ++o) {
    std::byte* out = outs[o] + at;
    for (Index v = 0; v < kBlock; ++v)
      Streaming ? T::stream(out + v * kStep, result[v]) : T::store(out + v * kStep, result[v]);
  }
}

template <class T, bool Streaming>
Index sum_blocks(std::byte* const* outs, int out_count, const std::byte* const* sources, int count,
                 Index n) {
  constexpr Index kElements = kBlock * kLanes;
  const Index done = n / kElements * kElements;
  for (Index i = 0; i < done; i += kElements)
    sum_block<T, Streaming>(outs, out_count, sources, count, i * T::kBytes);
  if (Streaming) _mm_sfence();  // a release store that follows does not order streaming stores
  return done;
}

/// Streaming stores need whole vectors at their own boundaries, which tensors have.
bool aligned(std::byte* const* outs, int out_count) {
  for (int o = 0; o < out_count; ++o) {
    if (reinterpret_cast<std::uintptr_t>(outs[o]) % sizeof(__m256) != 0) return false;
  }
  return true;
}

template <class T>
Index sum_typed(std::byte* const* outs, int out_count, const std::byte* const* sources, int count,
                Index n, bool streaming) {
  return streaming && aligned(outs, out_count)
             ? sum_blocks<T, true>(outs, out_count, sources, count, n)
             : sum_blocks<T, false>(outs, out_count, sources, count, n);
}

}  // namespace

Index sum_vectors(std::byte* const* outs, int out_count, const std::byte* const* sources, int count,
                  Index n, DType dtype, bool streaming) {
  switch (dtype) {
    case DType::f32:
      return sum_typed<F32>(outs, out_count, sources, count, n, streaming);
    case DType::bf16:
      return sum_typed<Bf16>(outs, out_count, sources, count, n, streaming);
    case DType::f16:
      return sum_typed<F16>(outs, out_count, sources, count, n, streaming);
    case DType::i32:
      return 0;
  }
  return 0;
}
#else
Index sum_vectors(std::byte* const*, int, const std::byte* const*, int, Index, DType, bool) {
  return 0;
}
#endif

}  // namespace weft
