// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/unfold.h"

#include "loom/base/ceil_div.h"

#include <algorithm>

namespace loom::kernels {
namespace {

/// Windows [first, last) see an element of the plane through a tap, the first one `at`.
struct Seen {
  std::int64_t first, last, at;

  Seen(const UnfoldAxis& axis, std::int64_t tap) {
    const std::int64_t shift = tap * axis.dilation - axis.padding;
    first = std::clamp<std::int64_t>(ceil_div(std::max<std::int64_t>(-shift, 0), axis.stride), 0,
                                     axis.windows);
    const std::int64_t room = axis.size - shift;
    last =
        std::clamp<std::int64_t>(room > 0 ? ceil_div(room, axis.stride) : 0, first, axis.windows);
    at = first * axis.stride + shift;
  }
};

}  // namespace

template <class T>
void unfold_plane(const UnfoldAxis& y, const UnfoldAxis& x, const T* plane, T* to) noexcept {
  for (std::int64_t ky = 0; ky < y.kernel; ++ky) {
    const Seen rows(y, ky);
    for (std::int64_t kx = 0; kx < x.kernel; ++kx) {
      const Seen columns(x, kx);
      to = std::fill_n(to, rows.first * x.windows, T{});
      for (std::int64_t i = rows.first; i < rows.last; ++i) {
        const T* from = plane + (rows.at + (i - rows.first) * y.stride) * x.size + columns.at;
        const std::int64_t count = columns.last - columns.first;
        to = std::fill_n(to, columns.first, T{});
        if (x.stride == 1) {
          to = std::copy_n(from, count, to);
        } else {
          for (std::int64_t j = 0; j < count; ++j) *to++ = from[j * x.stride];
        }
        to = std::fill_n(to, x.windows - columns.last, T{});
      }
      to = std::fill_n(to, (y.windows - rows.last) * x.windows, T{});
    }
  }
}

template void unfold_plane(const UnfoldAxis&, const UnfoldAxis&, const std::uint16_t*,
                           std::uint16_t*) noexcept;
template void unfold_plane(const UnfoldAxis&, const UnfoldAxis&, const std::uint32_t*,
                           std::uint32_t*) noexcept;
template void unfold_plane(const UnfoldAxis&, const UnfoldAxis&, const std::uint64_t*,
                           std::uint64_t*) noexcept;

}  // namespace loom::kernels
