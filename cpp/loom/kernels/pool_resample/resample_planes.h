// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Resampling of planes (or volumes) with short rows, some at a time: turned, so that the elements
// of all of them at one place lie beside each other, as channels do. A row of few elements costs
// what it is begun with. T, thread: as in resample.h.

#include "loom/kernels/pool_resample/resample.h"

#include <cstddef>
#include <cstdint>

namespace loom::kernels::pool_resample {

/// How many planes are resampled at a time, whatever the number of planes, so that results do not
/// depend on it; 0 if each row by itself is better.
[[nodiscard]] std::int64_t planes_at_a_time(const Taps& depth, const Taps& rows,
                                            const Taps& columns) noexcept;

/// Bytes of room for elements of `item_bytes`.
[[nodiscard]] std::int64_t bytes_of_room(const Resampler& turned, std::size_t item_bytes) noexcept;

/// All rows of as many planes as `turned`, whose channels lie last, has channels. Planes lie behind
/// each other in `from` and `to`. Room: bytes_of_room(), at a multiple of 64.
template <class T>
void resample_planes(const Resampler& turned, const T* from, std::byte* room, T* to) noexcept;

}  // namespace loom::kernels::pool_resample
