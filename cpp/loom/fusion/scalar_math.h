// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The functions that neither the C++ library nor Sleef has, one element at a time.
// Thread: any.

namespace loom::fusion {

/// The inverse of erf: NaN outside of [-1, 1], infinities at the ends.
[[nodiscard]] double inverse_erf(double y) noexcept;
[[nodiscard]] float inverse_erf(float y) noexcept;

}  // namespace loom::fusion
