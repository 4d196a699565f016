// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/copy_bytes.h"
#include "loom/kernels/copy/element_order.h"
#include "loom/kernels/copy/interleave.h"
#include "loom/kernels/copy/strided_copy.h"
#include "loom/kernels/copy/transpose_tile.h"

#include <gtest/gtest.h>

#include "support/simd_levels.h"
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace loom::kernels {
namespace {

using Bytes = std::vector<std::byte>;

Bytes numbered(std::size_t size, std::size_t first = 0) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>(first + i * 131 + (i >> 8));
  }
  return bytes;
}

using CopySimdTest = testing::SimdTest;

TEST_P(CopySimdTest, BytesOfAnyPlaceAndLength) {
  const Bytes from = numbered(4096);
  for (const bool streaming : {false, true}) {
    for (std::size_t begin = 0; begin < 70; begin += 23) {
      for (const std::size_t bytes : {0u, 1u, 63u, 64u, 255u, 256u, 1000u, 3000u}) {
        Bytes to(4096, std::byte{7});
        copy_bytes.of(GetParam())(to.data() + begin, from.data() + 5, bytes, streaming);
        Bytes expected(4096, std::byte{7});
        std::copy_n(from.begin() + 5, bytes, expected.begin() + static_cast<std::ptrdiff_t>(begin));
        ASSERT_EQ(to, expected) << begin << " " << bytes << " " << streaming;
      }
    }
  }
}

TEST_P(CopySimdTest, ElementsByATableBackwardsAndOfAMatrix) {
  constexpr std::int64_t kCount = 101;
  for (const std::size_t item : {1u, 2u, 4u, 8u, 16u}) {
    const auto step = static_cast<std::ptrdiff_t>(item);
    const Bytes from = numbered(item * kCount);
    std::vector<std::int32_t> offsets(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      offsets[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 37 % kCount * step);
    }
    Bytes to(item * kCount), expected(item * kCount);
    copy_by_table.of(GetParam())(to.data(), from.data(), offsets.data(), kCount, item);
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::memcpy(expected.data() + i * step, from.data() + offsets[static_cast<std::size_t>(i)],
                  item);
    }
    EXPECT_EQ(to, expected) << item;

    copy_reversed.of(GetParam())(to.data(), from.data() + (kCount - 1) * step, kCount, item);
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::memcpy(expected.data() + i * step, from.data() + (kCount - 1 - i) * step, item);
    }
    EXPECT_EQ(to, expected) << item;

    std::fill(to.begin(), to.end(), std::byte{0});
    copy_matrix.of(GetParam())(to.data(), from.data(), {10, step, 10 * step}, {10, 10 * step, step},
                               item);
    for (std::int64_t row = 0; row < 10; ++row) {
      for (std::int64_t column = 0; column < 10; ++column) {
        EXPECT_EQ(std::memcmp(to.data() + (column * 10 + row) * step,
                              from.data() + (row * 10 + column) * step, item),
                  0);
      }
    }
  }
}

TEST_P(CopySimdTest, RunsOfAnyLength) {
  const Bytes from = numbered(40 * 300);
  for (std::size_t bytes = 1; bytes <= 300; ++bytes) {
    Bytes to(40 * 320, std::byte{9}), expected = to;
    const ElementSteps runs{40, 320, 300};
    (bytes < 64 ? copy_tiny_runs : copy_short_runs)
        .of(GetParam())(to.data(), from.data(), runs, bytes);
    for (std::ptrdiff_t i = 0; i < 40; ++i) {
      std::memcpy(expected.data() + i * 320, from.data() + i * 300, bytes);
    }
    ASSERT_EQ(to, expected) << bytes;
  }
}

TEST_P(CopySimdTest, SourcesTakeTurns) {
  for (const std::size_t item : {1u, 2u, 4u, 8u, 16u}) {
    for (const std::size_t count : {1u, 2u, 3u, 7u}) {
      std::vector<Bytes> made;
      std::vector<const std::byte*> sources;
      for (std::size_t j = 0; j < count; ++j) made.push_back(numbered((50 + j) * item, 7 * j));
      for (const Bytes& each : made) sources.push_back(each.data());
      Bytes to(44 * count * item);
      interleave_elements.of(GetParam())(sources, item, 3, 44, to.data());
      for (std::size_t i = 3; i < 44; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
          ASSERT_EQ(std::memcmp(to.data() + (i * count + j) * item, sources[j] + i * item, item),
                    0);
        }
      }
    }
  }
}

LOOM_TEST_SIMD_LEVELS(CopySimdTest);

template <class T>
void expect_turned(std::int64_t rows, std::int64_t columns) {
  const std::int64_t from_step = columns + 3, to_step = rows + 5;
  std::vector<T> from(static_cast<std::size_t>(rows * from_step));
  std::iota(from.begin(), from.end(), T{1});
  std::vector<T> to(static_cast<std::size_t>(columns * to_step)), expected = to;
  turn_matrix(from.data(), from_step, rows, columns, to.data(), to_step);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      expected[static_cast<std::size_t>(j * to_step + i)] =
          from[static_cast<std::size_t>(i * from_step + j)];
    }
  }
  EXPECT_EQ(to, expected) << rows << " x " << columns;
}

TEST(TransposeTest, MatricesOfAnySizeAreTurned) {
  for (const std::int64_t rows : {1, 7, 32, 65, 100}) {
    for (const std::int64_t columns : {1, 3, 64, 70}) {
      expect_turned<std::uint16_t>(rows, columns);
      expect_turned<float>(rows, columns);
    }
  }
}

struct Shape {
  std::vector<std::int64_t> sizes, to, from;  ///< strides in elements
};

// Against one element after the other.
void expect_copied(const Shape& shape, std::size_t item, std::size_t total_bytes = 0) {
  std::ptrdiff_t to_low = 0, to_high = 0, from_low = 0, from_high = 0;
  for (std::size_t d = 0; d < shape.sizes.size(); ++d) {
    const std::int64_t last = shape.sizes[d] - 1;
    (shape.to[d] < 0 ? to_low : to_high) += shape.to[d] * last;
    (shape.from[d] < 0 ? from_low : from_high) += shape.from[d] * last;
  }
  const auto bytes = [&](std::ptrdiff_t elements) {
    return static_cast<std::size_t>(elements) * item;
  };
  const Bytes from = numbered(bytes(from_high - from_low + 1));
  Bytes to(bytes(to_high - to_low + 1), std::byte{3}), expected = to;
  const TensorView target{to.data() + bytes(-to_low), shape.sizes, shape.to, item};
  const TensorView source{const_cast<std::byte*>(from.data()) + bytes(-from_low), shape.sizes,
                          shape.from, item};
  const auto copy = StridedCopy::between(target, source, std::max(total_bytes, to.size()));
  ASSERT_TRUE(copy.has_value());
  for (std::int64_t block = 0; block < copy->blocks(); ++block) copy->run(block);

  const std::int64_t numel =
      std::accumulate(shape.sizes.begin(), shape.sizes.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t i = 0; i < numel; ++i) {
    std::int64_t rest = i;
    std::ptrdiff_t there = -to_low, here = -from_low;
    for (std::size_t d = shape.sizes.size(); d-- > 0;) {
      there += rest % shape.sizes[d] * shape.to[d];
      here += rest % shape.sizes[d] * shape.from[d];
      rest /= shape.sizes[d];
    }
    std::memcpy(expected.data() + bytes(there), from.data() + bytes(here), item);
  }
  EXPECT_EQ(to, expected);
}

TEST(StridedCopyTest, EachFormCopiesEachElement) {
  for (const std::size_t item : {1u, 2u, 4u, 8u, 16u}) {
    SCOPED_TRACE(item);
    expect_copied({{200, 300}, {300, 1}, {1, 200}}, item);  // tiles
    expect_copied({{37, 61}, {61, 1}, {1, 37}}, item);
    expect_copied({{5, 900}, {900, 1}, {1, 5}}, item);  // narrow
    expect_copied({{900, 5}, {5, 1}, {1, 900}}, item);
    expect_copied({{500}, {1}, {-1}}, item);                     // backwards
    expect_copied({{40, 70}, {70, 1}, {100, 1}}, item);          // runs
    expect_copied({{300, 3, 4}, {12, 4, 1}, {12, 1, 3}}, item);  // a table
    expect_copied({{6, 5, 40, 30}, {6000, 1200, 30, 1}, {30, 7200, 180, 1}}, item);
  }
}

TEST(StridedCopyTest, PartsOfLargeResultsGoPastTheCaches) {
  constexpr std::size_t kLarge = std::size_t{1} << 30;
  for (const std::size_t item : {2u, 4u, 8u}) {
    SCOPED_TRACE(item);
    expect_copied({{200, 300}, {300, 1}, {1, 200}}, item, kLarge);
    expect_copied({{9, 5000}, {5000, 1}, {5003, 1}}, item, kLarge);
    expect_copied({{9, 5003}, {5011, 1}, {5003, 1}}, item, kLarge);
    expect_copied({{40, 70}, {70, 1}, {100, 1}}, item, kLarge);
  }
  for (const std::size_t item : {1u, 2u, 4u, 8u, 16u}) {
    SCOPED_TRACE(item);
    expect_copied({{703, 1101}, {1101, 1}, {1, 703}}, item, kLarge);  // squares of tiles
    expect_copied({{3, 30, 1100}, {33033, 1101, 1}, {33000, 1, 30}}, item, kLarge);
  }
}

TEST(StridedCopyTest, OfWhatIsBroadcastThereIsNone) {
  Bytes memory(4096);
  const std::vector<std::int64_t> sizes{4, 100}, dense{100, 1}, repeated{7, 0};
  const TensorView to{memory.data(), sizes, dense, 4}, from{memory.data(), sizes, repeated, 4};
  EXPECT_FALSE(StridedCopy::between(to, from, 1600).has_value());
}

}  // namespace
}  // namespace loom::kernels
