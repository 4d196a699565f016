// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/tile_rows.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>
#include <utility>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

constexpr std::int64_t kSide = 4;  // of a tile of the images
constexpr int kWidest = simd::kVectorBytes / sizeof(float);

template <int kCount>
struct Vector {
  using Type [[gnu::vector_size(kCount * sizeof(float))]] = float;
};

// Whole vectors, the last of which may overlap the one before.
template <int kCount>
[[gnu::always_inline]] inline void copy_vectors(const float* from, float* to, std::int64_t count) {
  typename Vector<kCount>::Type last, next;
  std::memcpy(&last, from + count - kCount, sizeof last);
  for (std::int64_t i = 0; i + kCount < count; i += kCount) {
    std::memcpy(&next, from + i, sizeof next);
    std::memcpy(to + i, &next, sizeof next);
  }
  std::memcpy(to + count - kCount, &last, sizeof last);
}

[[gnu::always_inline]] inline void copy_elements(const float* from, float* to, std::int64_t count) {
  if (kWidest >= 16 && count >= 16) return copy_vectors<16>(from, to, count);
  if (kWidest >= 8 && count >= 8) return copy_vectors<8>(from, to, count);
  if (count >= 4) return copy_vectors<4>(from, to, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

// Elements 0, 2, 4, ... of two vectors, or the others.
template <int kOdd, class Type, int... kLane>
[[gnu::always_inline]] inline void store_every_second(const Type& low, const Type& high, float* to,
                                                      std::integer_sequence<int, kLane...>) {
  const auto made = __builtin_shufflevector(low, high, (2 * kLane + kOdd)...);
  std::memcpy(to, &made, sizeof made);
}

// The tiles of a run, kCount at a time: what is more than there are is overwritten by the next run.
template <int kCount>
[[gnu::always_inline]] inline void split_run(const float* rows, std::int64_t rows_ld,
                                             const TileRun& run, float* to, std::int64_t ld) {
  using Type = typename Vector<kCount>::Type;
  constexpr std::make_integer_sequence<int, kCount> order;
  for (std::int64_t tile = 0; tile < run.count; tile += kCount) {
    const float* from = rows + run.row + 2 * tile;
    float* at = to + run.column + tile;
    for (std::int64_t y = 0; y < kSide; ++y, from += rows_ld, at += kSide * ld) {
      for (std::int64_t x = 0; x < kSide; x += 2) {
        Type low, high;
        std::memcpy(&low, from + x, sizeof low);
        std::memcpy(&high, from + x + kCount, sizeof high);
        store_every_second<0>(low, high, at + x * ld, order);
        store_every_second<1>(low, high, at + (x + 1) * ld, order);
      }
    }
  }
}

template <int kCount>
[[gnu::always_inline]] inline void split_runs(const float* rows, std::int64_t rows_ld,
                                              std::span<const TileRun> runs, float* to,
                                              std::int64_t ld) {
  for (const TileRun& run : runs) split_run<kCount>(rows, rows_ld, run, to, ld);
}

}  // namespace

void copy_out(const float* image, std::span<const TileCopy> copies, float* rows) noexcept {
  for (const TileCopy& copy : copies)
    copy_elements(image + copy.image, rows + copy.row, copy.count);
}
void copy_in(const float* rows, std::span<const TileCopy> copies, float* image) noexcept {
  for (const TileCopy& copy : copies)
    copy_elements(rows + copy.row, image + copy.image, copy.count);
}

void split_tiles(const float* rows, std::int64_t rows_ld, std::span<const TileRun> runs,
                 std::int64_t longest, float* to, std::int64_t ld) noexcept {
  if (kWidest >= 16 && longest > 8) return split_runs<16>(rows, rows_ld, runs, to, ld);
  if (kWidest >= 8 && longest > 4) return split_runs<8>(rows, rows_ld, runs, to, ld);
  split_runs<4>(rows, rows_ld, runs, to, ld);
}

}  // namespace loom::kernels::conv::LOOM_SIMD
