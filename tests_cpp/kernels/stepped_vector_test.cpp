// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/rng/stepped_vector.h"

#include <gtest/gtest.h>

#include "support/elements.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace loom::kernels::rng {
namespace {

constexpr std::int64_t kCount = 37;

/// Elements with `step` of them from one to the next.
template <class T>
struct Memory {
  explicit Memory(std::int64_t steps) : elements(kCount * steps), step(steps) {}
  Memory(std::int64_t steps, std::uint32_t seed)
      : elements(testing::elements<T>(kCount * steps, seed)), step(steps) {}

  template <class As = T>
  [[nodiscard]] SteppedVector<As> vector() {
    return {reinterpret_cast<std::byte*>(elements.data()),
            step * static_cast<std::int64_t>(sizeof(T))};
  }
  [[nodiscard]] const T& operator[](std::int64_t i) const {
    return elements[static_cast<std::size_t>(i * step)];
  }

  std::vector<T> elements;
  std::int64_t step;
};

template <class T, class Number>
T stored(Number number, std::int64_t step) {
  Memory<T> made(step);
  const std::vector<Number> numbers(kCount, number);
  store_numbers(made.template vector<>(), numbers.data(), kCount);
  const T last = made[kCount - 1];
  EXPECT_EQ(std::memcmp(&last, &made[0], sizeof(T)), 0);
  return last;
}

TEST(SteppedVectorTest, NumbersAreStoredAsCpuConvertsThem) {
  for (const std::int64_t step : {1, 3}) {
    EXPECT_EQ((stored<std::uint8_t>(0x1p8 + 3, step)), 3);
    EXPECT_EQ((stored<std::int64_t>(0x1p80, step)), 0x7FFFFFFFFFFFFC00);
    EXPECT_EQ((stored<float>(std::int64_t{1} << 40, step)), 0x1p40F);
    EXPECT_EQ((stored<std::int8_t>(std::uint8_t{1}, step)), 1);
    EXPECT_EQ((stored<double>(0.1F, step)), double{0.1F});
    EXPECT_EQ((stored<simd::BFloat16>(257.F, step).bits), 0x4380);  // ties go to even
    EXPECT_EQ((stored<simd::Half>(std::uint8_t{1}, step).bits), 0x3C00);
    EXPECT_EQ((stored<simd::Half>(1e9, step).bits), 0x7C00);
  }
}

template <class T>
void expect_loaded(std::int64_t step) {
  Memory<T> memory(step, /*seed=*/1);
  std::vector<double> made(kCount + 1, 7);
  load_numbers(made.data(), memory.template vector<const T>(), kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(made[static_cast<std::size_t>(i)], testing::exact(memory[i]));
  }
  EXPECT_EQ(made.back(), 7);
}

TEST(SteppedVectorTest, NumbersAreLoadedExactly) {
  for (const std::int64_t step : {1, 3}) {
    expect_loaded<float>(step);
    expect_loaded<simd::Half>(step);
    expect_loaded<simd::BFloat16>(step);
  }
}

template <class T>
void expect_scaled(std::int64_t to_step, std::int64_t from_step, std::int64_t kept_step) {
  Memory<T> to(to_step), from(from_step, /*seed=*/1);
  Memory<std::uint8_t> kept(kept_step);
  for (std::size_t i = 0; i < kept.elements.size(); i += 2) kept.elements[i] = 1;
  scale_kept_elements(to.template vector<>(), from.template vector<const T>(),
                      kept.template vector<const std::uint8_t>(), kCount, 1.25F);
  for (std::int64_t i = 0; i < kCount; ++i) {
    T expected{};
    simd::round_to(expected, simd::widen(from[i]) * static_cast<float>(kept[i]) * 1.25F);
    EXPECT_EQ(testing::exact(to[i]), testing::exact(expected));
  }
}

TEST(SteppedVectorTest, KeptElementsAreScaledWhateverTheSteps) {
  for (const std::int64_t to : {1, 2}) {
    for (const std::int64_t from : {1, 3}) {
      for (const std::int64_t kept : {1, 5}) {
        expect_scaled<float>(to, from, kept);
        expect_scaled<simd::BFloat16>(to, from, kept);
      }
    }
  }
}

}  // namespace
}  // namespace loom::kernels::rng
