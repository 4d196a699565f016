// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The exponential function of vectors; for files as floats.h is for. Thread: any.

#include "loom/simd/floats.h"

namespace loom::simd::LOOM_SIMD {

/// Computes e^x for x <= 88, within 2 ULP; 0 where the result would be subnormal. Constants:
/// Cephes' expf.
[[gnu::always_inline]] inline Floats exponential(Floats x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const Floats shifted = x * 1.44269504088896341F + kRound;
  const Floats n = shifted - kRound;
  const Floats r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
  const Floats power = bits_of<Floats>((bits_of<Bits>(shifted) << 23) + 0x3f800000);
  return x < -87.33654F ? Floats{} : p * power;
}

}  // namespace loom::simd::LOOM_SIMD
