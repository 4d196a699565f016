// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How a thread's floating-point instructions round and treat denormal numbers
// (`torch.set_flush_denormal` is a setting of one thread). Work that moves to another thread takes
// its mode along.
// Thread: any, each has its own mode.

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace loom {

class FloatMode {
 public:
  [[nodiscard]] static FloatMode current() noexcept {
    FloatMode mode;
#if defined(__SSE__)
    mode.bits_ = static_cast<std::uint16_t>(_mm_getcsr() & ~kFlags);
#endif
    return mode;
  }
  /// current() where denormals are taken for zero, as torch.set_flush_denormal() has it, else the
  /// default: a comparison. To ask the processor for its mode takes a fifth of a submission.
  [[nodiscard]] static FloatMode of_submission() noexcept {
#if defined(__SSE__)
    float denormal = 1e-45F;
    // Volatile, since the mode may change between two calls: neither folded nor reused.
    asm volatile("" : "+x"(denormal));
    if (denormal == 0) [[unlikely]] {
      return current();
    }
#endif
    return {};
  }
  void set() const noexcept {
#if defined(__SSE__)
    _mm_setcsr(bits_);
#endif
  }

  friend bool operator==(const FloatMode&, const FloatMode&) = default;

 private:
#if defined(__SSE__)
  static constexpr unsigned kFlags = 0x3f;  // what has happened, not what shall
#endif
  std::uint16_t bits_ = 0x1f80;  // the default: no exceptions, to nearest, denormals kept
};

/// This thread has `mode` while the guard lives. Most often it has it already, and to ask is cheap.
class FloatModeGuard {
 public:
  explicit FloatModeGuard(FloatMode mode) noexcept
      : before_(FloatMode::current()), differs_(before_ != mode) {
    if (differs_) mode.set();
  }
  ~FloatModeGuard() {
    if (differs_) before_.set();
  }
  FloatModeGuard(const FloatModeGuard&) = delete;
  FloatModeGuard& operator=(const FloatModeGuard&) = delete;

 private:
  const FloatMode before_;
  const bool differs_;
};

}  // namespace loom
