// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Whether an element is zero, from its bits: signs of floating-point zeros do not count.

#include "loom/kernels/index/chosen.h"

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace loom::ops {

/// Calls body(test) with the test for elements at `data`; false if it has none for the dtype.
template <class Body>
bool with_nonzero_test(c10::ScalarType dtype, const void* data, Body&& body) {
  using kernels::index::Nonzero;
  const auto call = [&]<class Word, int kWords, Word kMask>(Nonzero<Word, kWords, kMask>) {
    body(Nonzero<Word, kWords, kMask>{static_cast<const Word*>(data)});
    return true;
  };
  constexpr std::uint16_t kMagnitude16 = 0x7FFF;
  constexpr std::uint32_t kMagnitude32 = 0x7FFFFFFF;
  constexpr std::uint64_t kMagnitude64 = 0x7FFFFFFFFFFFFFFF;
  switch (dtype) {
    case c10::kBool:
    case c10::kByte:
    case c10::kChar:
      return call(Nonzero<std::uint8_t>{});
    case c10::kShort:
      return call(Nonzero<std::uint16_t>{});
    case c10::kInt:
      return call(Nonzero<std::uint32_t>{});
    case c10::kLong:
      return call(Nonzero<std::uint64_t>{});
    case c10::kHalf:
    case c10::kBFloat16:
      return call(Nonzero<std::uint16_t, 1, kMagnitude16>{});
    case c10::kFloat:
      return call(Nonzero<std::uint32_t, 1, kMagnitude32>{});
    case c10::kDouble:
      return call(Nonzero<std::uint64_t, 1, kMagnitude64>{});
    case c10::kComplexHalf:
      return call(Nonzero<std::uint16_t, 2, kMagnitude16>{});
    case c10::kComplexFloat:
      return call(Nonzero<std::uint32_t, 2, kMagnitude32>{});
    case c10::kComplexDouble:
      return call(Nonzero<std::uint64_t, 2, kMagnitude64>{});
    default:
      return false;
  }
}

}  // namespace loom::ops
