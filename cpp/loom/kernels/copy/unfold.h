// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Windows of planes as columns (im2col): row (ky, kx) of a plane's has what each window sees there,
// zeros beside the plane. T: an integer as wide as an element. Thread: any; only what is passed is
// touched.

#include <cstdint>

namespace loom::kernels {

/// One direction of the windows.
struct UnfoldAxis {
  std::int64_t size, windows, kernel, stride, padding, dilation;
};

/// The rows of one plane: y.kernel * x.kernel of them, y.windows * x.windows elements each.
template <class T>
void unfold_plane(const UnfoldAxis& y, const UnfoldAxis& x, const T* plane, T* to) noexcept;

}  // namespace loom::kernels
