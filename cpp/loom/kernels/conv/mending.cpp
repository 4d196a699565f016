// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/conv/mending.h"

#include "loom/simd/vector_bytes.h"

#include <cstring>

namespace loom::kernels::conv::LOOM_SIMD {
namespace {

// Numbers whose exponent is all ones.
constexpr std::uint32_t kExponent = 0x7f800000;
constexpr std::uint16_t kShortExponent = kExponent >> 16;

// What a sum is cut into, so that additions need not wait for each other.
using Lanes [[gnu::vector_size(simd::kVectorBytes)]] = float;
using Bits [[gnu::vector_size(simd::kVectorBytes)]] = std::int32_t;
constexpr std::int64_t kLane = sizeof(Lanes) / sizeof(float), kVectors = 4;
static_assert(kMaskedStep % (kVectors * kLane) == 0);

constexpr std::int64_t kDoubles = simd::kVectorBytes / sizeof(double);
using Doubles [[gnu::vector_size(kDoubles * sizeof(double))]] = double;
using Floats [[gnu::vector_size(kDoubles * sizeof(float))]] = float;

}  // namespace

bool all_finite(const float* data, std::int64_t count) noexcept {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    found |= (__builtin_bit_cast(std::uint32_t, data[i]) & kExponent) == kExponent ? 1U : 0U;
  }
  return found == 0;
}

bool all_finite(const simd::BFloat16* data, std::int64_t count) noexcept {
  std::uint16_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    found |= (data[i].bits & kShortExponent) == kShortExponent ? 1U : 0U;
  }
  return found == 0;
}

float masked_dot(const float* window, const float* weights, const std::int32_t* inside,
                 std::int64_t count) noexcept {
  Lanes sums[kVectors] = {};
  for (std::int64_t at = 0; at < count; at += kVectors * kLane) {
    for (std::int64_t v = 0; v < kVectors; ++v) {
      Lanes a, b;
      Bits product, kept;
      std::memcpy(&a, window + at + v * kLane, sizeof a);
      std::memcpy(&b, weights + at + v * kLane, sizeof b);
      std::memcpy(&kept, inside + at + v * kLane, sizeof kept);
      a *= b;
      std::memcpy(&product, &a, sizeof a);
      product &= kept;
      std::memcpy(&a, &product, sizeof a);
      sums[v] += a;
    }
  }
  const Lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float sum = 0;
  for (std::int64_t i = 0; i < kLane; ++i) sum += all[i];
  return sum;
}

double exact_dot(const float* a, const float* b, std::int64_t count, std::int64_t step) noexcept {
  Doubles sums = {};
  std::int64_t i = 0;
  for (; step == 1 && i + kDoubles <= count; i += kDoubles) {
    Floats left, right;
    std::memcpy(&left, a + i, sizeof left);
    std::memcpy(&right, b + i, sizeof right);
    sums += __builtin_convertvector(left, Doubles) * __builtin_convertvector(right, Doubles);
  }
  double sum = 0;
  for (std::int64_t lane = 0; lane < kDoubles; ++lane) sum += sums[lane];
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i * step]);
  return sum;
}

}  // namespace loom::kernels::conv::LOOM_SIMD
