// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions that the C++ library does not have, one element at a time.
// Thread: any.

namespace loom::fusion {

/// The inverse of erf: NaN outside of [-1, 1], infinities at the ends.
[[nodiscard]] double inverse_erf(double y) noexcept;
[[nodiscard]] float inverse_erf(float y) noexcept;

/// log |gamma|; unlike std::lgamma it leaves the process's signgam alone.
[[nodiscard]] double log_gamma(double x) noexcept;
[[nodiscard]] float log_gamma(float x) noexcept;

}  // namespace loom::fusion
