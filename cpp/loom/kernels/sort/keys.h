// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers whose order is that of the elements: what is not a number is above all others, and zeros
// are equal. Thread: any.

#include <cstdint>
#include <limits>
#include <type_traits>

namespace loom::kernels::sort {

/// Keys of integers, or of bool as std::uint8_t. Each has a key of its own.
template <class T>
struct IntegerKeys {
  using Raw = T;
  using Key = std::make_unsigned_t<T>;
  static constexpr Key kFlipped =
      std::is_signed_v<T> ? static_cast<Key>(Key{1} << (sizeof(T) * 8 - 1)) : Key{0};

  [[nodiscard]] static Key encode(T value) noexcept {
    return static_cast<Key>(static_cast<Key>(value) ^ kFlipped);
  }
  [[nodiscard]] static T decode(Key key) noexcept { return static_cast<T>(key ^ kFlipped); }
  /// Whether decode() makes another element of its key.
  [[nodiscard]] static constexpr bool loses(T) noexcept { return false; }
};

/// Keys of floating-point numbers, given as their bits. kInfinity: those of infinity.
template <class Bits, Bits kInfinity>
struct FloatKeys {
  using Raw = Bits;
  using Key = Bits;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));

  [[nodiscard]] static bool is_nan(Bits bits) noexcept {
    return static_cast<Bits>(bits & ~kSign) > kInfinity;
  }
  [[nodiscard]] static bool loses(Bits bits) noexcept { return is_nan(bits) || bits == kSign; }
  // Signs are as good as random: no branch may depend on them.
  [[nodiscard]] static Key encode(Bits bits) noexcept {
    const auto ordered = static_cast<Bits>(bits ^ (all_if(bits >> kSignPlace) | kSign));
    const auto zero = static_cast<Bits>(ordered + (bits == kSign ? 1 : 0));
    return static_cast<Bits>(zero | all_if(is_nan(bits) ? 1 : 0));
  }
  [[nodiscard]] static Bits decode(Key key) noexcept {
    return static_cast<Bits>(key ^ (all_if((key >> kSignPlace) ^ 1) | kSign));
  }

 private:
  static constexpr int kSignPlace = sizeof(Bits) * 8 - 1;

  /// All bits if `bit` is 1, none if it is 0.
  [[nodiscard]] static Bits all_if(Bits bit) noexcept { return static_cast<Bits>(Bits{0} - bit); }
};

using FloatKeys16 = FloatKeys<std::uint16_t, 0x7c00>;
using BFloat16Keys = FloatKeys<std::uint16_t, 0x7f80>;
using FloatKeys32 = FloatKeys<std::uint32_t, 0x7f80'0000>;
using FloatKeys64 = FloatKeys<std::uint64_t, 0x7ff0'0000'0000'0000>;

}  // namespace loom::kernels::sort
