// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A floating-point mode that tests can tell from the default one.

#include "loom/base/float_mode.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace loom::testing {

/// While it lives, the calling thread's instructions take denormal operands for zero and make
/// denormal results zero, as with torch.set_flush_denormal(True).
class Flushing {
 public:
#if defined(__SSE__)
  static constexpr bool kKnown = true;  // whether this processor's mode is
  Flushing() noexcept { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
  static constexpr bool kKnown = false;
  Flushing() noexcept {}
#endif
  ~Flushing() { before_.set(); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  const FloatMode before_ = FloatMode::current();
};

/// The smallest normal number divided by two, as the calling thread computes it.
inline float half_of_least() noexcept {
  const volatile float least = 1.17549435e-38F;
  return least / 2;
}

}  // namespace loom::testing
