// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/norm/short_rows.h"

#include "loom/kernels/norm/turned_rows.h"

#include <algorithm>
#include <cstddef>

namespace loom::kernels::norm {
namespace {

/// The parts of the room.
template <class T>
struct Room {
  float *maxima, *sums, *scratch;
  T* turned;

  Room(float* room, std::int64_t columns)
      : maxima(room),
        sums(room + kTurnedRows),
        scratch(sums + kTurnedRows),
        turned(reinterpret_cast<T*>(scratch + columns * kTurnedRows)) {}
};

/// Calls body(first row, rows) for groups of rows.
template <class Body>
void for_groups(std::int64_t rows, Body body) {
  for (std::int64_t row = 0; row < rows; row += kTurnedRows) {
    body(row, std::min(kTurnedRows, rows - row));
  }
}

}  // namespace

template <class T>
void softmax_short_rows(T* to, const T* from, std::int64_t rows, std::int64_t columns,
                        bool logarithm, float* room) noexcept {
  const Room<T> parts(room, columns);
  for_groups(rows, [&](std::int64_t row, std::int64_t count) {
    turn_rows(from + row * columns, count, columns, parts.turned);
    if (logarithm) {
      log_softmax_turned<T>(parts.turned, columns);
    } else {
      softmax_turned<T>(parts.turned, parts.scratch, columns, parts.maxima, parts.sums);
    }
    turn_back(parts.turned, count, columns, to + row * columns);
  });
}

void softmax_short_rows(float* to, const float* from, std::int64_t rows, std::int64_t columns,
                        float* maxima, float* sums, float* room) noexcept {
  const Room<float> parts(room, columns);
  for_groups(rows, [&](std::int64_t row, std::int64_t count) {
    turn_rows(from + row * columns, count, columns, parts.turned);
    softmax_turned<float>(parts.turned, parts.scratch, columns, parts.maxima, parts.sums);
    std::copy_n(parts.maxima, count, maxima + row);
    std::copy_n(parts.sums, count, sums + row);
    if (to != nullptr) turn_back(parts.turned, count, columns, to + row * columns);
  });
}

#define LOOM_INSTANTIATE(T) \
  template void softmax_short_rows(T*, const T*, std::int64_t, std::int64_t, bool, float*) noexcept;
LOOM_INSTANTIATE(float)
LOOM_INSTANTIATE(simd::BFloat16)
LOOM_INSTANTIATE(simd::Half)
#undef LOOM_INSTANTIATE

}  // namespace loom::kernels::norm
