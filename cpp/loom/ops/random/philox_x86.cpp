// SPDX-License-Identifier: BSD-3-Clause
// Philox for AVX2 and AVX-512. Every 32-bit word of the state lives in a 64-bit lane whose upper
// half is garbage: the multiplication reads lower halves only, and its 64-bit product then holds
// two new words where they are needed, with no shuffle. A compiler left alone with the loop of
// philox.cpp needs two to three times as long.
#include "loom/ops/random/philox.h"

#include <immintrin.h>

#define LOOM_AVX2 [[gnu::target("avx2"), gnu::always_inline]] static inline
#define LOOM_AVX512 [[gnu::target("avx512f"), gnu::always_inline]] static inline

namespace loom::ops::random::detail {
namespace {

constexpr int kRounds = 10;
constexpr std::uint32_t kMultiplierA = 0xD2511F53U, kMultiplierB = 0xCD9E8D57U;
constexpr std::uint32_t kWeylA = 0x9E3779B9U, kWeylB = 0xBB67AE85U;

struct Key {
  std::uint32_t a, b;
};

// The state of 4 counters, one of the 4 words each.
struct State256 {
  __m256i words[4];
};

LOOM_AVX2 State256 start256(std::uint64_t counter) {
  const __m256i counters = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<std::int64_t>(counter)),
                                            _mm256_set_epi64x(3, 2, 1, 0));
  const __m256i zero = _mm256_setzero_si256();
  return {{counters, _mm256_srli_epi64(counters, 32), zero, zero}};
}

LOOM_AVX2 void round256(State256& state, Key key) {
  const __m256i a = _mm256_mul_epu32(state.words[0], _mm256_set1_epi64x(kMultiplierA));
  const __m256i b = _mm256_mul_epu32(state.words[2], _mm256_set1_epi64x(kMultiplierB));
  const __m256i first = _mm256_xor_si256(state.words[1], _mm256_set1_epi64x(key.a));
  const __m256i third = _mm256_xor_si256(state.words[3], _mm256_set1_epi64x(key.b));
  state = {{_mm256_xor_si256(_mm256_srli_epi64(b, 32), first), b,
            _mm256_xor_si256(_mm256_srli_epi64(a, 32), third), a}};
}

// Writes the lower halves of 4 + 4 lanes.
LOOM_AVX2 void store256(std::uint32_t* to, __m256i low, __m256i high) {
  const __m256 both = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
  const __m256i ordered = _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
}

// 8 counters: as many as the 16 registers hold with the constants.
LOOM_AVX2 void half_tile256(Key key, std::uint64_t counter, std::uint32_t* words) {
  State256 low = start256(counter);
  State256 high = start256(counter + 4);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    round256(low, key);
    round256(high, key);
    key.a += kWeylA;
    key.b += kWeylB;
  }
  for (std::int64_t word = 0; word < 4; ++word) {
    store256(words + word * kTileCounters, low.words[word], high.words[word]);
  }
}

[[gnu::target("avx2")]] void philox_avx2(std::uint64_t seed, std::uint64_t counter,
                                         std::int64_t count, std::uint32_t* words) noexcept {
  const Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t half = 0; half < 2 * count; ++half, counter += 8) {
    half_tile256(key, counter, words + half / 2 * kTileWords + half % 2 * 8);
  }
}

// The state of 8 counters.
struct State512 {
  __m512i words[4];
};

LOOM_AVX512 State512 start512(std::uint64_t counter) {
  const __m512i counters = _mm512_add_epi64(_mm512_set1_epi64(static_cast<std::int64_t>(counter)),
                                            _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  const __m512i zero = _mm512_setzero_si512();
  return {{counters, _mm512_srli_epi64(counters, 32), zero, zero}};
}

LOOM_AVX512 void round512(State512& state, Key key) {
  constexpr int kXor3 = 0x96;
  const __m512i a = _mm512_mul_epu32(state.words[0], _mm512_set1_epi64(kMultiplierA));
  const __m512i b = _mm512_mul_epu32(state.words[2], _mm512_set1_epi64(kMultiplierB));
  state = {{_mm512_ternarylogic_epi64(_mm512_srli_epi64(b, 32), state.words[1],
                                      _mm512_set1_epi64(key.a), kXor3),
            b,
            _mm512_ternarylogic_epi64(_mm512_srli_epi64(a, 32), state.words[3],
                                      _mm512_set1_epi64(key.b), kXor3),
            a}};
}

LOOM_AVX512 void store512(std::uint32_t* to, __m512i lanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(lanes));
}

LOOM_AVX512 void tile512(Key key, std::uint64_t counter, std::uint32_t* words) {
  State512 low = start512(counter);
  State512 high = start512(counter + 8);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    round512(low, key);
    round512(high, key);
    key.a += kWeylA;
    key.b += kWeylB;
  }
  for (std::int64_t word = 0; word < 4; ++word) {
    store512(words + word * kTileCounters, low.words[word]);
    store512(words + word * kTileCounters + 8, high.words[word]);
  }
}

[[gnu::target("avx512f")]] void philox_avx512(std::uint64_t seed, std::uint64_t counter,
                                              std::int64_t count, std::uint32_t* words) noexcept {
  const Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::int64_t tile = 0; tile < count; ++tile, counter += kTileCounters) {
    tile512(key, counter, words + tile * kTileWords);
  }
}

}  // namespace

std::vector<PhiloxFunction> philox_functions() {
  std::vector<PhiloxFunction> functions;
  if (__builtin_cpu_supports("avx512f")) functions.push_back(philox_avx512);
  if (__builtin_cpu_supports("avx2")) functions.push_back(philox_avx2);
  functions.push_back(philox_portable);
  return functions;
}

}  // namespace loom::ops::random::detail
