// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/winograd_tiles.h"

#include "loom/ops/product/multiply.h"
#include "loom/ops/product/winograd_parts.h"
#include "loom/ops/random/isa_clones.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace loom::ops {
namespace {

constexpr std::int64_t kSide = 4;  // of a tile of the images
constexpr std::int64_t kMostLanes = 16;

const Scratch t_rows;

template <int kCount>
struct Vector {
  using Type [[gnu::vector_size(kCount * sizeof(float))]] = float;
  using Order [[gnu::vector_size(kCount * sizeof(int))]] = int;
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
  if (count >= 16) return copy_vectors<16>(from, to, count);
  if (count >= 8) return copy_vectors<8>(from, to, count);
  if (count >= 4) return copy_vectors<4>(from, to, count);
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}

LOOM_ISA_CLONES void copy_out(const float* image, std::span<const TileCopy> copies, float* rows) {
  for (const TileCopy& copy : copies)
    copy_elements(image + copy.image, rows + copy.row, copy.count);
}
LOOM_ISA_CLONES void copy_in(const float* rows, std::span<const TileCopy> copies, float* image) {
  for (const TileCopy& copy : copies)
    copy_elements(rows + copy.row, image + copy.image, copy.count);
}

// Elements 0, 2, 4, ... of two vectors, or the others.
template <int kCount, int kOdd>
[[gnu::always_inline]] inline void store_every_second(const typename Vector<kCount>::Type& low,
                                                      const typename Vector<kCount>::Type& high,
                                                      float* to) {
  typename Vector<kCount>::Order order;
  for (int i = 0; i < kCount; ++i) order[i] = 2 * i + kOdd;
  const auto made = __builtin_shuffle(low, high, order);
  std::memcpy(to, &made, sizeof made);
}

// The tiles of a run, kCount at a time: what is more than there are is overwritten by the next run.
template <int kCount>
[[gnu::always_inline]] inline void split_run(const float* rows, std::int64_t rows_ld,
                                             const TileInputs::Run& run, float* to,
                                             std::int64_t ld) {
  using Type = typename Vector<kCount>::Type;
  for (std::int64_t tile = 0; tile < run.count; tile += kCount) {
    const float* from = rows + run.row + 2 * tile;
    float* at = to + run.column + tile;
    for (std::int64_t y = 0; y < kSide; ++y, from += rows_ld, at += kSide * ld) {
      for (std::int64_t x = 0; x < kSide; x += 2) {
        Type low, high;
        std::memcpy(&low, from + x, sizeof low);
        std::memcpy(&high, from + x + kCount, sizeof high);
        store_every_second<kCount, 0>(low, high, at + x * ld);
        store_every_second<kCount, 1>(low, high, at + (x + 1) * ld);
      }
    }
  }
}

template <int kCount>
[[gnu::always_inline]] inline void split_runs(const float* rows, std::int64_t rows_ld,
                                              std::span<const TileInputs::Run> runs, float* to,
                                              std::int64_t ld) {
  for (const TileInputs::Run& run : runs) split_run<kCount>(rows, rows_ld, run, to, ld);
}

LOOM_ISA_CLONES void split_long(const float* rows, std::int64_t rows_ld,
                                std::span<const TileInputs::Run> runs, float* to, std::int64_t ld) {
  split_runs<16>(rows, rows_ld, runs, to, ld);
}
LOOM_ISA_CLONES void split_middle(const float* rows, std::int64_t rows_ld,
                                  std::span<const TileInputs::Run> runs, float* to,
                                  std::int64_t ld) {
  split_runs<8>(rows, rows_ld, runs, to, ld);
}
LOOM_ISA_CLONES void split_short(const float* rows, std::int64_t rows_ld,
                                 std::span<const TileInputs::Run> runs, float* to,
                                 std::int64_t ld) {
  split_runs<4>(rows, rows_ld, runs, to, ld);
}

}  // namespace

TileInputs::TileInputs(const Windows& tiles, std::int64_t first, std::int64_t count)
    : ld_(2 * tiles.x.result + 2) {
  const WindowAxis &ys = tiles.y, &xs = tiles.x;
  // The gradient of padded images may see less than all of what was made of them.
  const std::int64_t before = std::max<std::int64_t>(xs.padding, 0);
  const std::int64_t skipped = std::max<std::int64_t>(-xs.padding, 0);
  std::int64_t rows = 0;
  for_each_image(tiles, first, count, [&](const ImageRun& run) {
    const std::int64_t image = run.image * tiles.channels * tiles.plane();
    const std::int64_t top = run.pixel / xs.result;
    const std::int64_t bottom = (run.pixel + run.count - 1) / xs.result;
    const std::int64_t begin = rows;
    for (std::int64_t row = 2 * top; row < 2 * bottom + kSide; ++row, ++rows) {
      const std::int64_t y = row - ys.padding;
      const std::int64_t width = std::min(xs.size - skipped, ld_ - before);
      if (y < 0 || y >= ys.size || width <= 0) continue;
      copies_.push_back({image + y * xs.size + skipped, rows * ld_ + before, width});
    }
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t row = (run.pixel + done) / xs.result, x = (run.pixel + done) % xs.result;
      const std::int64_t length = std::min(xs.result - x, run.count - done);
      runs_.push_back({(begin + 2 * (row - top)) * ld_ + 2 * x, run.column + done, length});
      longest_ = std::max(longest_, length);
      done += length;
    }
  });
  // Runs may read a little more than there is.
  const std::int64_t size = rows * ld_ + 2 * kMostLanes + kSide;
  rows_ = t_rows.get<float>(size);
  std::fill_n(rows_, size, 0.F);
}

void TileInputs::take(const float* channel, float* to, std::int64_t ld) const {
  copy_out(channel, copies_, rows_);
  const auto split = longest_ > 8 ? split_long : longest_ > 4 ? split_middle : split_short;
  split(rows_, ld_, runs_, to, ld);
}

TilePixels::TilePixels(const Windows& pixels, std::int64_t first, std::int64_t count,
                       std::int64_t width) {
  const WindowAxis &ys = pixels.y, &xs = pixels.x;
  for_each_image(pixels, first, count, [&](const ImageRun& run) {
    const std::int64_t image = run.image * pixels.channels * pixels.plane();
    for (std::int64_t done = 0; done < run.count;) {
      const std::int64_t row = (run.pixel + done) / xs.result, x = (run.pixel + done) % xs.result;
      const std::int64_t length = std::min(xs.result - x, run.count - done);
      for (std::int64_t y = 2 * row; y < std::min(2 * row + 2, ys.size); ++y) {
        copies_.push_back({image + y * xs.size + 2 * x,
                           (y - 2 * row) * 2 * width + 2 * (run.column + done),
                           std::min(2 * length, xs.size - 2 * x)});
      }
      done += length;
    }
  });
}

void TilePixels::take(const float* channel, float* rows) const { copy_out(channel, copies_, rows); }
void TilePixels::put(const float* rows, float* channel) const { copy_in(rows, copies_, channel); }

}  // namespace loom::ops
