// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the C++ library does not have, one element at a time.
// Thread: any.

namespace loom::fusion {

/// log |gamma|; unlike std::lgamma it leaves the process's signgam alone.
[[nodiscard]] double log_gamma(double x) noexcept;
[[nodiscard]] float log_gamma(float x) noexcept;

}  // namespace loom::fusion
