// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/pool_resample/mix_rows.h"

#include "loom/simd/floats.h"
#include "loom/simd/multiply_add.h"

#include <type_traits>

namespace loom::kernels::pool_resample::LOOM_SIMD {
namespace {

using namespace simd::LOOM_SIMD;

template <class From, class To>
[[gnu::always_inline]] inline void mix(const From* const* rows, const float* weights,
                                       std::int64_t mixed, std::int64_t count, To* to) noexcept {
  const auto run = [=](auto sum) __attribute__((always_inline)) {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      store(to + i,
            sum([i](const From* row) __attribute__((always_inline)) { return load(row + i); }));
    }
    if (i == count) return;
    const std::int64_t rest = count - i;
    const auto load_rest = [=](const From* row) __attribute__((always_inline)) {
      return load_part(row + i, rest, 0);
    };
    store_part(to + i, sum(load_rest), rest);
  };
  // Pointers and weights stay in registers: for the compiler `to` may lie where they do.
  const auto run_few = [=]<int kRows>(std::integral_constant<int, kRows>)
                           __attribute__((always_inline)) {
                             const From* each[kRows];
                             Floats weight[kRows];
                             for (int r = 0; r < kRows; ++r) {
                               each[r] = rows[r];
                               weight[r] = all(weights[r]);
                             }
                             run([&](auto load_row) __attribute__((always_inline)) {
                               Floats sum = weight[0] * load_row(each[0]);
                               for (int r = 1; r < kRows; ++r) {
                                 sum = multiply_add(weight[r], load_row(each[r]), sum);
                               }
                               return sum;
                             });
                           };
  // Four vectors of each row: the sums do not wait for one another, and rows are read in order.
  const auto run_many = [=]() __attribute__((always_inline)) {
    constexpr std::int64_t kVectors = 4;
    std::int64_t i = 0;
    for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
      Floats sums[kVectors]{};
      for (std::int64_t r = 0; r < mixed; ++r) {
        const Floats weight = all(weights[r]);
        const From* const row = rows[r] + i;
        for (std::int64_t v = 0; v < kVectors; ++v) {
          const Floats value = load(row + v * kLanes);
          sums[v] = r == 0 ? weight * value : multiply_add(weight, value, sums[v]);
        }
      }
      for (std::int64_t v = 0; v < kVectors; ++v) store(to + i + v * kLanes, sums[v]);
    }
    for (; i < count; i += kLanes) {
      const std::int64_t rest = count - i;
      Floats sum{};
      for (std::int64_t r = 0; r < mixed; ++r) {
        const Floats weight = all(weights[r]);
        const Floats value = rest < kLanes ? load_part(rows[r] + i, rest, 0) : load(rows[r] + i);
        sum = r == 0 ? weight * value : multiply_add(weight, value, sum);
      }
      if (rest < kLanes) {
        store_part(to + i, sum, rest);
      } else {
        store(to + i, sum);
      }
    }
  };
  switch (mixed) {
    case 0:
      for (std::int64_t i = 0; i < count; ++i) to[i] = To{};
      return;
    case 1:
      return run_few(std::integral_constant<int, 1>{});
    case 2:
      return run_few(std::integral_constant<int, 2>{});
    case 4:
      return run_few(std::integral_constant<int, 4>{});
    default:
      return run_many();
  }
}

}  // namespace

template <class T>
void mix_to_floats(const T* const* rows, const float* weights, std::int64_t mixed,
                   std::int64_t count, float* to) noexcept {
  mix(rows, weights, mixed, count, to);
}

template <class T>
void mix_floats(const float* const* rows, const float* weights, std::int64_t mixed,
                std::int64_t count, T* to) noexcept {
  mix(rows, weights, mixed, count, to);
}

#define LOOM_INSTANTIATE(T)                                                               \
  template void mix_to_floats(const T* const*, const float*, std::int64_t, std::int64_t,  \
                              float*) noexcept;                                           \
  template void mix_floats(const float* const*, const float*, std::int64_t, std::int64_t, \
                           T*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::pool_resample::LOOM_SIMD
