// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How long blocks are that are a call of ATen each. Thread: any.

#include <cstdint>

namespace loom::ops {

/// As block_length() (split.h); but since a call takes some microseconds by itself, blocks are
/// longer where there are many of them.
[[nodiscard]] std::int64_t call_length(std::int64_t items, double cost) noexcept;

}  // namespace loom::ops
