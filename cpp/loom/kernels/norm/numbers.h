// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers of which there is one for each row or channel. Thread: any.

#include "loom/simd/half.h"

#include <cstdint>

namespace loom::kernels::norm {

/// Float32 or of a half type, or none. Reading one costs what an array's element does.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(float* numbers) noexcept : floats_(numbers) {}
  explicit Numbers(simd::BFloat16* numbers) noexcept : bfloats_(numbers) {}
  explicit Numbers(simd::Half* numbers) noexcept : halves_(numbers) {}

  [[nodiscard]] float read(std::int64_t index, float absent) const noexcept {
    if (floats_ != nullptr) return floats_[index];
    if (bfloats_ != nullptr) return simd::widen(bfloats_[index]);
    return halves_ != nullptr ? simd::widen(halves_[index]) : absent;
  }
  /// Nothing, if there are none.
  void write(std::int64_t index, double value) const noexcept {
    const auto rounded = static_cast<float>(value);
    if (floats_ != nullptr) floats_[index] = rounded;
    if (bfloats_ != nullptr) simd::round_to(bfloats_[index], rounded);
    if (halves_ != nullptr) simd::round_to(halves_[index], rounded);
  }
  /// Null for others.
  [[nodiscard]] const float* floats() const noexcept { return floats_; }
  [[nodiscard]] bool are_halves() const noexcept {
    return bfloats_ != nullptr || halves_ != nullptr;
  }

 private:
  float* floats_ = nullptr;
  simd::BFloat16* bfloats_ = nullptr;
  simd::Half* halves_ = nullptr;
};

}  // namespace loom::kernels::norm
