// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which loop loads, stores and fills which dtype: included once for each instruction set.

#include "loom/fusion/primitives_impl.h"

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

Primitive find_load(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return &unary<Convert<Mask>, Mask, std::uint8_t>;
    case DType::kUInt8:
      return &unary<Same, std::int32_t, std::uint8_t>;
    case DType::kInt8:
      return &unary<Same, std::int32_t, std::int8_t>;
    case DType::kInt16:
      return &unary<Same, std::int32_t, std::int16_t>;
    case DType::kHalf:
      return &unary<FromHalf, float, std::uint16_t>;
    case DType::kBFloat16:
      return &unary<FromBFloat16, float, std::uint16_t>;
    case DType::kInt32:
    case DType::kFloat:
      return &unary<Same, std::uint32_t, std::uint32_t>;
    case DType::kInt64:
    case DType::kDouble:
      break;
  }
  return &unary<Same, std::uint64_t, std::uint64_t>;
}

Primitive find_store(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return &unary<Same, Mask, Mask>;
    case DType::kUInt8:
    case DType::kInt8:
      return &unary<Same, std::uint8_t, std::uint32_t>;
    case DType::kInt16:
      return &unary<Same, std::uint16_t, std::uint32_t>;
    case DType::kHalf:
      return &unary<ToHalf, std::uint16_t, float>;
    case DType::kBFloat16:
      return &unary<ToBFloat16, std::uint16_t, float>;
    default:
      return find_load(dtype);
  }
}

Primitive find_fill(std::size_t size) {
  if (size == 1) return &fill_loop<std::uint8_t>;
  if (size == 2) return &fill_loop<std::uint16_t>;
  return size == 4 ? &fill_loop<std::uint32_t> : &fill_loop<std::uint64_t>;
}

Primitive find_stream(std::size_t size) {
  if (size == 1) return &stream_loop<1>;
  if (size == 2) return &stream_loop<2>;
  return size == 4 ? &stream_loop<4> : &stream_loop<8>;
}

}  // namespace
}  // namespace loom::fusion
