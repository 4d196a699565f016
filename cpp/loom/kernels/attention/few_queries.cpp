// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/attention/few_queries.h"

#include "loom/simd/exponential.h"
#include "loom/simd/float_loops.h"
#include "loom/simd/lane_sums.h"

namespace loom::kernels::attention::LOOM_SIMD {
using namespace simd::LOOM_SIMD;
namespace {

constexpr float kInfinity = __builtin_inff();
// Sums that are in registers at a time: half of the registers.
constexpr int kSums = kLanes == 16 ? 16 : 8;
// Keys whose values are read for all rows before the next ones are: they stay in L1.
constexpr std::int64_t kNearKeys = 32;

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

/// Keys whose scores with so many queries are in registers at a time.
constexpr int keys_of(int rows) { return static_cast<int>(kLanes) / (rows == 3 ? 4 : rows); }

/// Scores of kRows queries and keys_of(kRows) keys, all in registers until they are summed up.
template <int kRows, class T>
[[gnu::always_inline]] inline void score_keys(const FewQueries<T>& p, std::int64_t row,
                                              std::int64_t first, float* scores, std::int64_t ld) {
  constexpr int kKeys = keys_of(kRows);
  const std::int64_t query_ld = padded_row(p.elements);
  const float* const queries = p.queries + row * query_ld;
  // Beyond the last key it is looked at again; nobody looks at such scores.
  const T* keys[kKeys];
  for (int k = 0; k < kKeys; ++k) {
    const std::int64_t key = first + k < p.count ? first + k : p.count - 1;
    keys[k] = p.keys + key * p.key_stride;
  }
  Floats sums[kLanes] = {};  // those of three rows leave some empty
  const auto add = [&](std::int64_t i, auto load_key) __attribute__((always_inline)) {
    Floats query[kRows];
    for (int r = 0; r < kRows; ++r) query[r] = load(queries + r * query_ld + i);
    for (int k = 0; k < kKeys; ++k) {
      const Floats key = load_key(keys[k] + i);
      for (int r = 0; r < kRows; ++r) sums[r * kKeys + k] += query[r] * key;
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= p.elements; i += kLanes) {
    add(i, [](const T* from) __attribute__((always_inline)) { return load(from); });
  }
  if (const std::int64_t rest = p.elements - i; rest > 0) {
    add(i, [=](const T* from) __attribute__((always_inline)) { return load_part(from, rest, 0); });
  }
  float lanes[kLanes];
  store(lanes, sums_of_lanes(sums) * p.scale);
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(scores + (row + r) * ld + first, lanes + r * kKeys, kKeys * sizeof(float));
  }
}

template <int kRows, class T>
[[gnu::always_inline]] inline std::int64_t score_rows(const FewQueries<T>& p, std::int64_t row,
                                                      std::int64_t begin, std::int64_t ld) {
  for (; row + kRows <= p.rows; row += kRows) {
    for (std::int64_t key = 0; key < kLanes; key += keys_of(kRows)) {
      score_keys<kRows>(p, row, begin + key, p.scores, ld);
    }
  }
  return row;
}

/// Scores to weights, in place; zeros after the last visible key.
template <class T>
void weigh(float* scores, std::int64_t padded, std::int64_t visible, const T* mask, float* maximum,
           float* sum_of_weights) {
  Floats most[kChains] = {all(-kInfinity), all(-kInfinity), all(-kInfinity), all(-kInfinity)};
  for_vectors(
      visible, LOOM_EACH {
        Floats score = get(scores, i, count, -kInfinity);
        if (mask != nullptr) score = rounded(score) + get(mask, i, count, 0);
        put(scores, i, count, score);
        most[chain] = larger(score, most[chain]);
      });
  *maximum = largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
  // Where nothing is visible weights are 0, not NaN.
  const Floats reference = all(*maximum == -kInfinity ? 0 : *maximum);
  Sum sum;
  for_vectors(
      visible, LOOM_EACH {
        const Floats score = get(scores, i, count, -kInfinity);
        const Floats weight = exponential(rounded(score) - reference);
        sum.chains[chain] += weight;
        put(scores, i, count, weight);
      });
  for (std::int64_t i = visible; i < padded; ++i) scores[i] = 0;
  *sum_of_weights = sum.total();
}

/// Adds the weighted values of some keys to kRows rows of results, kVectors vectors of each.
template <int kRows, int kVectors, class T, class Load>
[[gnu::always_inline]] inline void add_values(const T* values, std::int64_t stride,
                                              std::int64_t count, const float* weights,
                                              std::int64_t ld, float* results,
                                              std::int64_t results_ld, Load load_value) {
  Floats sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = load(results + r * results_ld + v * kLanes);
  }
  for (std::int64_t key = 0; key < count; ++key, values += stride) {
    Floats weight[kRows];
    for (int r = 0; r < kRows; ++r) weight[r] = all(weights[r * ld + key]);
    for (int v = 0; v < kVectors; ++v) {
      const Floats value = load_value(values + v * kLanes);
      for (int r = 0; r < kRows; ++r) sums[r][v] += weight[r] * value;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) store(results + r * results_ld + v * kLanes, sums[r][v]);
  }
}

/// The same for all elements.
template <int kRows, class T>
[[gnu::always_inline]] inline std::int64_t add_rows(const FewQueries<T>& p, std::int64_t row,
                                                    std::int64_t first, std::int64_t count,
                                                    std::int64_t ld) {
  constexpr int kWide = kSums / (kRows == 3 ? 4 : kRows);
  const std::int64_t results_ld = part_floats(p.elements);
  const auto whole = [](const T* from) __attribute__((always_inline)) { return load(from); };
  for (; row + kRows <= p.rows; row += kRows) {
    const float* const weights = p.scores + row * ld + first;
    const T* const values = p.values + first * p.value_stride;
    float* const results = p.parts + row * results_ld;
    std::int64_t i = 0;
    const auto add = [&]<int kVectors>(auto load_value) __attribute__((always_inline)) {
      add_values<kRows, kVectors>(values + i, p.value_stride, count, weights, ld, results + i,
                                  results_ld, load_value);
      i += kVectors * kLanes;
    };
    while (i + kWide * kLanes <= p.elements) add.template operator()<kWide>(whole);
    if constexpr (kWide >= 8) {
      if (i + 4 * kLanes <= p.elements) add.template operator()<4>(whole);
    }
    if constexpr (kWide >= 4) {
      if (i + 2 * kLanes <= p.elements) add.template operator()<2>(whole);
    }
    if (i + kLanes <= p.elements) add.template operator()<1>(whole);
    if (const std::int64_t rest = p.elements - i; rest > 0) {
      add.template operator()<1>(
          [=](const T* from) __attribute__((always_inline)) { return load_part(from, rest, 0); });
    }
  }
  return row;
}

}  // namespace

template <class T>
void attend_part(const FewQueries<T>& p) noexcept {
  const std::int64_t ld = padded_row(p.count), part = part_floats(p.elements);
  for (std::int64_t key = 0; key < p.count; key += kLanes) {
    std::int64_t row = score_rows<4>(p, 0, key, ld);
    row = score_rows<3>(p, row, key, ld);
    row = score_rows<2>(p, row, key, ld);
    score_rows<1>(p, row, key, ld);
  }
  for (std::int64_t row = 0; row < p.rows; ++row) {
    float* const results = p.parts + row * part;
    const std::int64_t sees = p.visible[row] < p.count ? p.visible[row] : p.count;
    float* const end = results + padded_row(p.elements);
    weigh(p.scores + row * ld, ld, sees < 0 ? 0 : sees, p.masks == nullptr ? nullptr : p.masks[row],
          end, end + 1);
    for (float* i = results; i < end; i += kLanes) store(i, Floats{});
  }
  for (std::int64_t first = 0; first < p.count; first += kNearKeys) {
    const std::int64_t count = p.count - first < kNearKeys ? p.count - first : kNearKeys;
    std::int64_t row = add_rows<4>(p, 0, first, count, ld);
    row = add_rows<3>(p, row, first, count, ld);
    row = add_rows<2>(p, row, first, count, ld);
    add_rows<1>(p, row, first, count, ld);
  }
}

template <class T>
void combine_parts(T* to, const float* parts, std::int64_t part_stride, std::int64_t count,
                   std::int64_t elements, float* log_sum) noexcept {
  const std::int64_t end = padded_row(elements);
  float maximum = -kInfinity;
  for (std::int64_t p = 0; p < count; ++p) {
    const float now = parts[p * part_stride + end];
    maximum = now > maximum ? now : maximum;
  }
  const float reference = maximum == -kInfinity ? 0 : maximum;
  const auto factor_of = [&](std::int64_t p) {
    return exponential(all(parts[p * part_stride + end] - reference))[0];
  };
  float sum = 0;
  for (std::int64_t p = 0; p < count; ++p) sum += factor_of(p) * parts[p * part_stride + end + 1];
  const float divisor = sum == 0 ? 1 : sum;
  for (std::int64_t begin = 0; begin < elements; begin += kChains * kLanes) {
    const std::int64_t left = elements - begin;
    Sum sums;
    for (std::int64_t p = 0; p < count; ++p) {
      const Floats factor = all(factor_of(p));
      const float* const from = parts + p * part_stride + begin;
      for (std::int64_t v = 0; v * kLanes < left && v < kChains; ++v) {
        sums.chains[v] += factor * load(from + v * kLanes);
      }
    }
    for (std::int64_t v = 0; v * kLanes < left && v < kChains; ++v) {
      const std::int64_t rest = left - v * kLanes;
      put(to + begin, v * kLanes, rest < kLanes ? rest : kLanes, sums.chains[v] * (1.0F / divisor));
    }
  }
  *log_sum = reference + __builtin_logf(divisor);
}

template <class T>
bool hides_all(const T* mask, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    if (simd::widen(mask[i]) != -kInfinity) return false;
  }
  return true;
}

#define LOOM_INSTANTIATE(T)                                                               \
  template void attend_part(const FewQueries<T>&) noexcept;                               \
  template void combine_parts(T*, const float*, std::int64_t, std::int64_t, std::int64_t, \
                              float*) noexcept;                                           \
  template bool hides_all(const T*, std::int64_t) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::attention::LOOM_SIMD
