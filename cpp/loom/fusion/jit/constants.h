// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The numbers that machine code reads, in one table whose address it keeps in a register.
// Thread: constants.

#include "loom/fusion/cdf_table.h"
#include "loom/fusion/erf_table.h"
#include "loom/fusion/op.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace loom::fusion::jit {

/// Numbers that there are for each type but kMask.
enum class Number : std::uint8_t {
  kOne,
  kMinusOne,
  kLowest,
  kHighest,
  kSignBit,
  kOtherBits,
  kZero
};

struct Constants {
  ErfTable erf;
  CdfTable cdf;
  std::array<std::array<std::uint64_t, 4>, 7> by_type;  ///< [Number][Type - 1]
  std::array<std::uint64_t, 2> one_bytes;               ///< sixteen bytes 1
  std::array<std::uint32_t, 8> lane_numbers;
  std::uint64_t low_byte, low_half, half_ulp, high_half, quiet_nan, odd;
};

alignas(64) inline constexpr Constants kConstants = {
    .erf = kErfTable,
    .cdf = kCdfTable,
    .by_type = {{
        {1, 1, 0x3F800000, 0x3FF0000000000000},
        {0xFFFFFFFF, ~std::uint64_t{0}, 0xBF800000, 0xBFF0000000000000},
        {0x80000000, 0x8000000000000000, 0xFF800000, 0xFFF0000000000000},
        {0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x7F800000, 0x7FF0000000000000},
        {0x80000000, 0x8000000000000000, 0x80000000, 0x8000000000000000},
        {0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF},
        {0, 0, 0, 0},
    }},
    .one_bytes = {0x0101010101010101, 0x0101010101010101},
    .lane_numbers = {0, 1, 2, 3, 4, 5, 6, 7},
    .low_byte = 0xFF,
    .low_half = 0xFFFF,
    .half_ulp = 0x7FFF,       // of a bfloat16, less one
    .high_half = 0xFFFF0000,  // the bits of a float that a bfloat16 has
    .quiet_nan = 0x7FC00000,
    .odd = 1,
};

[[nodiscard]] inline int offset_of(Number number, Type type) noexcept {
  return static_cast<int>(offsetof(Constants, by_type)) +
         (static_cast<int>(number) * 4 + static_cast<int>(type) - 1) * 8;
}

}  // namespace loom::fusion::jit
