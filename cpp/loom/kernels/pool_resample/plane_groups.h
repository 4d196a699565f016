// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Pooling of planes (or volumes) with short rows, some at a time: turned, so that the elements of
// all of them at one place lie beside each other, as channels do. A row of few elements costs what
// it is begun with. T, thread: as in pooling.h.

#include "loom/kernels/pool_resample/pooling.h"

#include <cstddef>
#include <cstdint>

namespace loom::kernels::pool_resample {

/// How many of `planes` are best pooled at a time; 0 if each row by itself is better.
[[nodiscard]] std::int64_t planes_at_a_time(const Windows& windows, std::int64_t planes,
                                            std::size_t item_bytes) noexcept;

/// The same windows of `count` planes that are turned.
[[nodiscard]] Windows of_turned(const Windows& windows, std::int64_t count);

/// Bytes of room that the functions below need, for elements of `item_bytes`.
[[nodiscard]] std::int64_t bytes_of_room(const Windows& turned, std::size_t item_bytes) noexcept;

/// Averages, their gradient and maxima of as many planes as `turned` has channels, all rows. Planes
/// lie behind each other in `from`, `grad` and `to`. Places as largest_row() has them. Room:
/// bytes_of_room(), at a multiple of 64.
template <class T>
void average_planes(const Windows& turned, const T* from, std::byte* room, T* to) noexcept;
template <class T>
void average_gradient_planes(const Windows& turned, const T* grad, std::byte* room, T* to) noexcept;
template <class T>
void largest_planes(const Windows& turned, const T* from, std::byte* room, T* to,
                    std::int64_t* places) noexcept;

}  // namespace loom::kernels::pool_resample
