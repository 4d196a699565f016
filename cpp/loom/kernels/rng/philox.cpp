// SPDX-License-Identifier: BSD-3-Clause
// In vectors of x86 every 32-bit word of the state lives in a 64-bit lane whose upper half is
// garbage: the multiplication reads lower halves only, and its 64-bit product then holds two new
// words where they are needed, with no shuffle. A compiler left alone with the portable loop needs
// two to three times as long.
#include "loom/kernels/rng/philox.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace loom::kernels::rng::LOOM_SIMD {
namespace {

#if defined(__AVX2__) || defined(__ARM_NEON)
constexpr int kRounds = 10;
constexpr std::uint32_t kMultiplierA = 0xD2511F53U, kMultiplierB = 0xCD9E8D57U;
constexpr std::uint32_t kWeylA = 0x9E3779B9U, kWeylB = 0xBB67AE85U;

struct Key {
  std::uint32_t a, b;
};
#endif

#if defined(__AVX512F__)
// The state of 8 counters.
struct State {
  __m512i words[4];
};

[[gnu::always_inline]] inline State start(std::uint64_t counter) {
  const __m512i counters = _mm512_add_epi64(_mm512_set1_epi64(static_cast<std::int64_t>(counter)),
                                            _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
  const __m512i zero = _mm512_setzero_si512();
  return {{counters, _mm512_srli_epi64(counters, 32), zero, zero}};
}

[[gnu::always_inline]] inline void one_round(State& state, Key key) {
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

[[gnu::always_inline]] inline void store(std::uint32_t* to, __m512i lanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(lanes));
}

[[gnu::always_inline]] inline void tile(Key key, std::uint64_t counter, std::uint32_t* words) {
  State low = start(counter);
  State high = start(counter + 8);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    one_round(low, key);
    one_round(high, key);
    key.a += kWeylA;
    key.b += kWeylB;
  }
  for (std::int64_t word = 0; word < 4; ++word) {
    store(words + word * kTileCounters, low.words[word]);
    store(words + word * kTileCounters + 8, high.words[word]);
  }
}

#elif defined(__AVX2__)
// The state of 4 counters, one of the 4 words each.
struct State {
  __m256i words[4];
};

[[gnu::always_inline]] inline State start(std::uint64_t counter) {
  const __m256i counters = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<std::int64_t>(counter)),
                                            _mm256_set_epi64x(3, 2, 1, 0));
  const __m256i zero = _mm256_setzero_si256();
  return {{counters, _mm256_srli_epi64(counters, 32), zero, zero}};
}

[[gnu::always_inline]] inline void one_round(State& state, Key key) {
  const __m256i a = _mm256_mul_epu32(state.words[0], _mm256_set1_epi64x(kMultiplierA));
  const __m256i b = _mm256_mul_epu32(state.words[2], _mm256_set1_epi64x(kMultiplierB));
  const __m256i first = _mm256_xor_si256(state.words[1], _mm256_set1_epi64x(key.a));
  const __m256i third = _mm256_xor_si256(state.words[3], _mm256_set1_epi64x(key.b));
  state = {{_mm256_xor_si256(_mm256_srli_epi64(b, 32), first), b,
            _mm256_xor_si256(_mm256_srli_epi64(a, 32), third), a}};
}

// Writes the lower halves of 4 + 4 lanes.
[[gnu::always_inline]] inline void store(std::uint32_t* to, __m256i low, __m256i high) {
  const __m256 both = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
  const __m256i ordered = _mm256_permute4x64_epi64(_mm256_castps_si256(both), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
}

// 8 counters: as many as the 16 registers hold with the constants.
[[gnu::always_inline]] inline void half_tile(Key key, std::uint64_t counter, std::uint32_t* words) {
  State low = start(counter);
  State high = start(counter + 4);
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    one_round(low, key);
    one_round(high, key);
    key.a += kWeylA;
    key.b += kWeylB;
  }
  for (std::int64_t word = 0; word < 4; ++word) {
    store(words + word * kTileCounters, low.words[word], high.words[word]);
  }
}

[[gnu::always_inline]] inline void tile(Key key, std::uint64_t counter, std::uint32_t* words) {
  half_tile(key, counter, words);
  half_tile(key, counter + 8, words + 8);
}

#elif defined(__ARM_NEON)
// The state of 4 counters. Here to part the halves of products again is one instruction each.
struct State {
  uint32x4_t words[4];
};

[[gnu::always_inline]] inline State start(std::uint64_t counter) {
  const uint64x2_t first = vcombine_u64(vcreate_u64(counter), vcreate_u64(counter + 1));
  const uint32x4_t low = vreinterpretq_u32_u64(first);
  const uint32x4_t high = vreinterpretq_u32_u64(vaddq_u64(first, vdupq_n_u64(2)));
  const uint32x4_t zero = vdupq_n_u32(0);
  return {{vuzp1q_u32(low, high), vuzp2q_u32(low, high), zero, zero}};
}

[[gnu::always_inline]] inline void one_round(State& state, Key key) {
  const auto low = [](uint32x4_t words, std::uint32_t factor) __attribute__((always_inline)) {
    return vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(words), factor));
  };
  const auto high = [](uint32x4_t words, std::uint32_t factor) __attribute__((always_inline)) {
    return vreinterpretq_u32_u64(vmull_high_n_u32(words, factor));
  };
  const uint32x4_t a_low = low(state.words[0], kMultiplierA);
  const uint32x4_t a_high = high(state.words[0], kMultiplierA);
  const uint32x4_t b_low = low(state.words[2], kMultiplierB);
  const uint32x4_t b_high = high(state.words[2], kMultiplierB);
  const uint32x4_t first = veorq_u32(state.words[1], vdupq_n_u32(key.a));
  const uint32x4_t third = veorq_u32(state.words[3], vdupq_n_u32(key.b));
  state = {{veorq_u32(vuzp2q_u32(b_low, b_high), first), vuzp1q_u32(b_low, b_high),
            veorq_u32(vuzp2q_u32(a_low, a_high), third), vuzp1q_u32(a_low, a_high)}};
}

[[gnu::always_inline]] inline void tile(Key key, std::uint64_t counter, std::uint32_t* words) {
  constexpr int kStates = kTileCounters / 4;
  State states[kStates];
  for (int i = 0; i < kStates; ++i) states[i] = start(counter + static_cast<std::uint64_t>(4 * i));
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    for (State& state : states) one_round(state, key);
    key.a += kWeylA;
    key.b += kWeylB;
  }
  for (int word = 0; word < 4; ++word) {
    for (int i = 0; i < kStates; ++i) {
      vst1q_u32(words + word * kTileCounters + 4 * i, states[i].words[word]);
    }
  }
}

#else
using Key = std::array<std::uint32_t, 2>;

void tile(Key key, std::uint64_t counter, std::uint32_t* words) {
  for (int lane = 0; lane < kTileCounters; ++lane, ++counter) {
    const auto block = philox_4x32_10(
        {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
        key);
    for (int word = 0; word < 4; ++word) words[word * kTileCounters + lane] = block[word];
  }
}
#endif

}  // namespace

void philox_tiles(const PhiloxStream& stream, std::uint64_t first, std::int64_t count,
                  std::uint32_t* words) noexcept {
  const Key key{static_cast<std::uint32_t>(stream.seed),
                static_cast<std::uint32_t>(stream.seed >> 32)};
  std::uint64_t counter = stream.offset / 4 + first * kTileCounters;
  for (std::int64_t i = 0; i < count; ++i, counter += kTileCounters, words += kTileWords) {
    tile(key, counter, words);
  }
}

}  // namespace loom::kernels::rng::LOOM_SIMD
