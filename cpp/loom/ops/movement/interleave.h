// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tensors whose elements take turns in another one: stacked along the last dimension. Thread: any.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::ops {

/// True if there is code for elements of so many bytes.
[[nodiscard]] bool can_interleave(std::size_t item_bytes) noexcept;

/// to[i * sources.size() + j] = sources[j][i] for i from `begin` to `end`. Requires:
/// can_interleave(); `to` overlaps with no source.
void interleave_elements(const std::vector<const std::byte*>& sources, std::size_t item_bytes,
                         std::int64_t begin, std::int64_t end, std::byte* to) noexcept;

}  // namespace loom::ops
