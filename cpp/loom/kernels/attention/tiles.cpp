// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/attention/tiles.h"

#include "loom/base/ceil_div.h"
#include "loom/simd/exponential.h"
#include "loom/simd/float_loops.h"

namespace loom::kernels::attention::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

constexpr float kInfinity = __builtin_inff();

/// 0, 1, 2, ... as floats, which such small numbers are exactly.
[[gnu::always_inline]] inline Floats lane_numbers() {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<float>(i);
  return load(lanes);
}

/// A product as it is rounded, not contracted with what is added to it: scores may be so large that
/// they differ from their maximum only by that.
[[gnu::always_inline]] inline Floats rounded(Floats product) {
#if defined(__x86_64__)
  asm("" : "+x"(product));
#else
  asm("" : "+m"(product));  // vectors may be wider than a register here
#endif
  return product;
}

/// The lanes before `count`; others are `rest`.
[[gnu::always_inline]] inline Floats first_lanes(Floats value, std::int64_t count, float rest) {
  return count == kLanes ? value : (lane_numbers() < static_cast<float>(count) ? value : all(rest));
}

template <class T>
[[gnu::always_inline]] inline Floats score_gradient(const GradientTile<T>& t, std::int64_t row,
                                                    std::int64_t j) {
  const std::int64_t at = row * kTile + j;
  return load(t.scores + at) * (load(t.gradients + at) - load(t.products + j)) * t.scale;
}

}  // namespace

// Exactly what is invisible or beside the tile has the weight 0, as -inf gives. A maximum of -inf
// (nothing is visible) is taken as 0, so that weights are 0 and not NaN.
template <class T>
void softmax_tile(const SoftmaxTile<T>& t) noexcept {
  const Floats scale = all(t.scale);
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const std::int64_t more = t.visible + row * t.more;
    const std::int64_t visible = more < t.columns ? more : t.columns;
    float* const scores = t.scores + row * t.scores_ld;
    T* const weights = t.weights + row * t.weights_ld;
    const T* const mask = t.mask != nullptr ? t.mask + row * t.mask_ld : nullptr;
    Floats most[kChains] = {all(-kInfinity), all(-kInfinity), all(-kInfinity), all(-kInfinity)};
    if (mask != nullptr) {
      for_vectors(
          visible, LOOM_EACH {
            const Floats sum = rounded(load(scores + i) * scale) + get(mask, i, count, 0);
            store(scores + i, sum);
            most[chain] = larger(first_lanes(sum, count, -kInfinity), most[chain]);
          });
    } else {
      for_vectors(
          visible, LOOM_EACH {
            const Floats value = load(scores + i) * scale;
            most[chain] = larger(first_lanes(value, count, -kInfinity), most[chain]);
          });
    }
    const float now = largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
    const float maximum = t.maximum[row] > now ? t.maximum[row] : now;
    const float reference = maximum == -kInfinity ? 0 : maximum;
    const float factor = exponential(all(t.maximum[row] - reference))[0];
    const Floats factor_of_scores = mask != nullptr ? all(1) : scale;
    Sum sum;
    for_vectors(
        visible, LOOM_EACH {
          const Floats value = rounded(load(scores + i) * factor_of_scores) - reference;
          const Floats weight = exponential(first_lanes(value, count, -kInfinity));
          sum.chains[chain] += weight;
          store(weights + i, weight);
        });
    for (std::int64_t j = round_up(visible, kLanes); j < t.padded; j += kLanes) {
      store(weights + j, Floats{});
    }
    t.maximum[row] = maximum;
    t.sum[row] = t.sum[row] * factor + sum.total();
    if (t.results != nullptr) {
      float* const results = t.results + row * t.results_ld;
      for_vectors(
          t.result_columns, LOOM_EACH {
            (void)chain;
            put(results, i, count, get(results, i, count, 0) * factor);
          });
    }
  }
}

template <class T>
void finish_rows(T* to_rows, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                 std::int64_t rows, std::int64_t columns, const float* maximum, const float* sum,
                 float* log_sums) noexcept {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* const to = to_rows + row * to_ld;
    const float* const sums = from + row * from_ld;
    const float divisor = sum[row] == 0 ? 1 : sum[row];
    const Floats factor = all(1.0F / divisor);
    for_vectors(
        columns, LOOM_EACH {
          (void)chain;
          put(to, i, count, get(sums, i, count, 0) * factor);
        });
    log_sums[row] = (maximum[row] == -kInfinity ? 0 : maximum[row]) + __builtin_logf(divisor);
  }
}

template <class T>
void row_products(float* to, const T* a_rows, std::int64_t a_ld, const T* b_rows, std::int64_t b_ld,
                  std::int64_t rows, std::int64_t columns) noexcept {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* const a = a_rows + row * a_ld;
    const T* const b = b_rows + row * b_ld;
    Sum sum;
    for_vectors(
        columns, LOOM_EACH { sum.chains[chain] += get(a, i, count, 0) * get(b, i, count, 0); });
    to[row] = sum.total();
  }
}

template <class T>
void store_rows(T* to_rows, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                std::int64_t rows, std::int64_t columns) noexcept {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* const to = to_rows + row * to_ld;
    const float* const values = from + row * from_ld;
    for_vectors(
        columns, LOOM_EACH {
          (void)chain;
          put(to, i, count, get(values, i, count, 0));
        });
  }
}

template <class T>
void tile_weights(const GradientTile<T>& t) noexcept {
  T* const weights = t.weights;
  const Floats scale = all(t.scale), numbers = lane_numbers();
  for (std::int64_t row = 0; row < t.rows; ++row) {
    const Floats hidden = all(static_cast<float>(t.hidden + row));
    for (std::int64_t j = 0; j < t.columns; j += kLanes) {
      float* const at = t.scores + row * kTile + j;
      Floats score = rounded(load(at) * scale);
      if (t.mask != nullptr) score += load(t.mask + row * kTile + j);
      // A product of another order of sums may be larger than their logarithm.
      Floats weight = exponential(smaller(all(88), score - load(t.log_sums + j)));
      if (t.causal) weight = numbers + static_cast<float>(j) >= hidden ? weight : Floats{};
      store(at, weight);
      if constexpr (sizeof(T) != sizeof(float)) store(weights + row * kTile + j, weight);
    }
  }
}

namespace {

// In pairs of keys, which is how bfloat16 is packed.
void packed_gradients(const GradientTile<simd::BFloat16>& t) noexcept {
  simd::BFloat16 *const plain = t.score_gradients, *const packed = t.packed_gradients;
  const std::int64_t rows = round_up(t.rows, kPadding);
  for (std::int64_t row = 0; row < rows; row += 2) {
    for (std::int64_t j = 0; j < t.columns; j += kLanes) {
      Halves two[2] = {};
      for (int k = 0; k < 2; ++k) {
        if (row + k >= t.rows) continue;
        two[k] = narrowed(score_gradient(t, row + k, j));
        std::memcpy(plain + (row + k) * kTile + j, &two[k], sizeof two[k]);
      }
      const Bits pair = words_of(two[0]) | words_of(two[1]) << 16;
      std::memcpy(packed + row * kTile + 2 * j, &pair, sizeof pair);
    }
  }
}

void plain_gradients(const GradientTile<float>& t) noexcept {
  const std::int64_t rows = round_up(t.rows, kPadding);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t j = 0; j < t.columns; j += kLanes) {
      store(t.gradients + row * kTile + j, row < t.rows ? score_gradient(t, row, j) : Floats{});
    }
  }
}

}  // namespace

template <class T>
void tile_gradients(const GradientTile<T>& t) noexcept {
  if constexpr (sizeof(T) == sizeof(float)) {
    plain_gradients(t);
  } else {
    packed_gradients(t);
  }
}

template <class T>
void turn_mask(float* to, const T* from, std::int64_t from_ld, std::int64_t rows,
               std::int64_t columns) noexcept {
  for (std::int64_t i = 0; i < kTile * kTile; ++i) to[i] = 0;
  for (std::int64_t i = 0; i < rows; ++i, from += from_ld) {
    for (std::int64_t j = 0; j < columns; ++j) to[j * kTile + i] = simd::widen(from[j]);
  }
}

#define LOOM_INSTANTIATE(T)                                                                        \
  template void softmax_tile(const SoftmaxTile<T>&) noexcept;                                      \
  template void finish_rows(T*, std::int64_t, const float*, std::int64_t, std::int64_t,            \
                            std::int64_t, const float*, const float*, float*) noexcept;            \
  template void row_products(float*, const T*, std::int64_t, const T*, std::int64_t, std::int64_t, \
                             std::int64_t) noexcept;                                               \
  template void tile_weights(const GradientTile<T>&) noexcept;                                     \
  template void tile_gradients(const GradientTile<T>&) noexcept;                                   \
  template void store_rows(T*, std::int64_t, const float*, std::int64_t, std::int64_t,             \
                           std::int64_t) noexcept;                                                 \
  template void turn_mask(float*, const T*, std::int64_t, std::int64_t, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::attention::LOOM_SIMD
