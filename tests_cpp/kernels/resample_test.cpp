// SPDX-License-Identifier: BSD-3-Clause
// Samples made from others, and the way back, against loops over elements.
#include "loom/kernels/pool_resample/resample.h"

#include "loom/kernels/pool_resample/resample_planes.h"
#include "loom/simd/half.h"

#include <gtest/gtest.h>

#include "support/numbers.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::kernels::pool_resample {
namespace {

using testing::numbers;

/// `count` elements of the input for each of the result, with weights of some kind; those of a
/// single one are 1.
Taps taps(std::int64_t input, std::int64_t result, std::int64_t count) {
  Taps made;
  made.from = input;
  for (std::int64_t i = 0; i < result; ++i) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t place =
          std::clamp<std::int64_t>(i * input / result + t - count / 2, 0, input - 1);
      made.add(static_cast<std::int32_t>(place),
               count == 1 ? 1 : 0.25F + 0.125F * static_cast<float>((i + t) % 5));
    }
    made.finish_element();
  }
  return made;
}

double weight(const Taps& axis, std::int64_t result, std::int64_t input) {
  double all = 0;
  for (std::int32_t t = axis.begin[result]; t < axis.begin[result + 1]; ++t) {
    if (axis.place[t] == input) all += axis.weight[t];
  }
  return all;
}

template <class T>
void expect_sums(const std::array<Taps, 3>& axes, std::int64_t channels, bool last,
                 double allowed) {
  const auto& [depth, rows, columns] = axes;
  const Resampler resampler(depth, rows, columns, channels, last);
  ASSERT_TRUE(resampler.fits());
  const auto values = numbers(resampler.input_rows() * resampler.input_row(), 3);
  std::vector<T> from(values.size());
  for (std::size_t i = 0; i < from.size(); ++i) simd::round_to(from[i], values[i]);
  std::vector<float> room(static_cast<std::size_t>(resampler.room()), 5);
  std::vector<T> to(static_cast<std::size_t>(resampler.result_rows() * resampler.result_row()));
  // In two parts, as two cores would.
  const std::int64_t half = resampler.result_rows() / 2;
  resampler.run<T>(half, resampler.result_rows(), from.data(), room.data(), to.data());
  resampler.run<T>(0, half, from.data(), room.data(), to.data());
  std::size_t at = 0;
  for (std::int64_t z = 0; z < depth.to(); ++z) {
    for (std::int64_t y = 0; y < rows.to(); ++y) {
      for (std::int64_t x = 0; x < columns.to(); ++x) {
        for (std::int64_t c = 0; c < channels; ++c, ++at) {
          double sum = 0;
          std::size_t i = static_cast<std::size_t>(c);
          for (std::int64_t k = 0; k < depth.from; ++k) {
            for (std::int64_t j = 0; j < rows.from; ++j) {
              const double of_row = weight(depth, z, k) * weight(rows, y, j);
              for (std::int64_t e = 0; e < columns.from; ++e) {
                sum += of_row * weight(columns, x, e) * simd::widen(from[i]);
                i += static_cast<std::size_t>(channels);
              }
            }
          }
          ASSERT_NEAR(simd::widen(to[at]), sum, allowed) << z << ", " << y << ", " << x;
        }
      }
    }
  }
}

void expect_all(const std::array<Taps, 3>& axes, double scale) {
  for (const std::int64_t channels : {1, 5, 33}) {
    expect_sums<float>(axes, channels, true, scale * 0x1p-20);
    expect_sums<simd::BFloat16>(axes, channels, true, scale * 0x1p-7);
  }
  expect_sums<float>(axes, 1, false, scale * 0x1p-20);
  expect_sums<simd::BFloat16>(axes, 1, false, scale * 0x1p-7);
  expect_sums<simd::Half>(axes, 1, false, scale * 0x1p-9);
}

TEST(ResampleTest, ElementsAreSumsOfTheirTaps) {
  for (const std::int64_t count : {1, 2, 4}) {
    for (const auto& [from, to] : {std::pair{5, 12}, std::pair{12, 5}, std::pair{7, 7}}) {
      const double scale = count == 1 ? 0 : static_cast<double>(count * count * count);
      const std::array<Taps, 3> plane{Taps::single(), taps(from, to, count),
                                      taps(from + 2, to + 20, count)};
      const std::array<Taps, 3> volume{taps(3, 5, count), taps(from, to, count),
                                       taps(from + 9, to, count)};
      expect_all(plane, scale);
      expect_all(volume, scale);
      // Gradients, also of elements that nothing was made of.
      const auto back = [](const std::array<Taps, 3>& axes) {
        return std::array{transposed(axes[0]), transposed(axes[1]), transposed(axes[2])};
      };
      expect_all(back(plane), 16 * (scale + 1));
      if (count < 4) expect_all(back(volume), 64 * (scale + 1));
    }
  }
}

TEST(ResampleTest, LongRowsOfChannelsAreMadeInPieces) {
  expect_sums<float>({Taps::single(), taps(2, 3, 2), taps(70, 90, 2)}, 300, true, 0x1p-18);
  expect_sums<float>({Taps::single(), taps(2, 3, 2), taps(3, 4, 2)}, 9000, true, 0x1p-18);
}

TEST(ResampleTest, ManyTapsAreLeftToOthers) {
  EXPECT_FALSE(
      Resampler(Taps::single(), Taps::single(), transposed(taps(1, 65, 1)), 1, false).fits());
  EXPECT_FALSE(Resampler(taps(9, 9, 9), taps(9, 9, 9), Taps::single(), 3, true).fits());
}

TEST(ResampleTest, TheWayBackHasTheSameWeights) {
  const Taps there = taps(5, 9, 4), back = transposed(there);
  ASSERT_EQ(back.from, 9);
  ASSERT_EQ(back.to(), 5);
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(weight(there, i, j), weight(back, j, i));
  }
}

/// Planes that are turned, each against itself alone.
template <class T>
void expect_planes(const std::array<Taps, 3>& axes, std::int64_t planes, double allowed) {
  const auto& [depth, rows, columns] = axes;
  ASSERT_GT(planes_at_a_time(depth, rows, columns), 0);
  const Resampler turned(depth, rows, columns, planes, /*last=*/true);
  const Resampler alone(depth, rows, columns, 1, /*last=*/false);
  const std::int64_t input = alone.input_rows() * alone.input_row();
  const std::int64_t result = alone.result_rows() * alone.result_row();
  const auto values = numbers(planes * input, 3);
  std::vector<T> from(values.size());
  for (std::size_t i = 0; i < from.size(); ++i) simd::round_to(from[i], values[i]);
  std::vector<T> to(static_cast<std::size_t>(planes * result)), expected(to.size());
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes_of_room(turned, sizeof(T))) + 64);
  auto* const room = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
  resample_planes<T>(turned, from.data(), room, to.data());
  std::vector<float> own_room(static_cast<std::size_t>(alone.room()));
  for (std::int64_t i = 0; i < planes; ++i) {
    alone.run<T>(0, alone.result_rows(), from.data() + i * input, own_room.data(),
                 expected.data() + i * result);
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    ASSERT_NEAR(simd::widen(to[i]), simd::widen(expected[i]), allowed) << i;
  }
}

TEST(ResampleTest, PlanesWithShortRowsTogether) {
  for (const std::int64_t planes : {1, 5, 32}) {
    expect_planes<float>({Taps::single(), taps(4, 8, 2), taps(3, 7, 2)}, planes, 1e-5);
    expect_planes<float>({taps(3, 5, 2), taps(4, 2, 4), taps(16, 9, 2)}, planes, 1e-5);
    expect_planes<float>({Taps::single(), taps(5, 10, 1), taps(5, 10, 1)}, planes, 0);
    expect_planes<simd::BFloat16>({Taps::single(), taps(4, 8, 2), taps(3, 7, 2)}, planes, 0.04);
    expect_planes<simd::Half>({Taps::single(), Taps::single(), taps(4, 6, 2)}, planes, 0.005);
  }
  EXPECT_EQ(planes_at_a_time(Taps::single(), taps(4, 8, 2), taps(30, 60, 2)), 0);
  EXPECT_EQ(planes_at_a_time(Taps::single(), taps(400, 800, 2), taps(4, 8, 2)), 0);
}

}  // namespace
}  // namespace loom::kernels::pool_resample
