// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/look_up.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/index/counting.h"
#include "loom/kernels/index/members.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace loom::ops {
namespace {

using namespace kernels::index;

// More than these are not sorted while the cores wait.
constexpr std::int64_t kMostSorted = 1 << 14;
// A table that stays in a core's caches.
constexpr std::uint64_t kMostInTable = 1 << 17;

template <class T, class Set>
void look_up(Grid& grid, const TensorRef& result, const TensorRef& self, const Set& among,
             bool invert, double cost) {
  const std::int64_t count = self.numel(), length = block_length(count, cost);
  grid.run_by_any(ceil_div(count, length), [&](std::int64_t block) {
    find_members(elements<bool>(result), elements<const T>(self), among, invert, block * length,
                 std::min(count, (block + 1) * length));
  });
}

template <class T>
void look_up_all(Grid& grid, const TensorRef& result, const TensorRef& self, const TensorRef& among,
                 bool invert) {
  const auto* const others = elements<const T>(among);
  const std::int64_t count = among.numel();
  if constexpr (std::is_integral_v<T>) {
    if (count > 0) {
      const auto [least, most] = least_and_most(others, 0, count);
      const std::uint64_t range =
          static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
      if (range < kMostInTable) {
        return look_up<T>(grid, result, self, TableSet(others, count, least, range), invert, 4);
      }
    }
  }
  const double steps = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(count)));
  look_up<T>(grid, result, self, SortedSet(others, count), invert, 4 + 4 * steps);
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_privateuseone() && tensor.is_contiguous() && !tensor.is_neg() &&
         !tensor._is_zerotensor();
}

}  // namespace

bool launch_look_up(const char* name, const at::Tensor& result, const at::Tensor& elements,
                    const at::Tensor& among, bool invert) {
  const auto dtype = elements.scalar_type();
  const bool known =
      dtype == c10::kFloat || dtype == c10::kDouble ||
      (c10::isIntegralType(dtype, /*includeBool=*/false) && !c10::isBarebonesUnsignedType(dtype));
  if (!known || among.scalar_type() != dtype || result.scalar_type() != c10::kBool ||
      !is_plain(result) || !is_plain(elements) || !is_plain(among) ||
      result.sizes() != elements.sizes() || result.is_alias_of(elements) ||
      result.is_alias_of(among) || elements.numel() == 0 ||
      among.numel() > std::max(kMostSorted, elements.numel() / 16)) {
    return false;
  }
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& self,
                         const TensorRef& others, bool inverted) {
    AT_DISPATCH_ALL_TYPES(self.dtype(), "isin",
                          [&] { look_up_all<scalar_t>(grid, to, self, others, inverted); });
  };
  launch(name, Custom{}, kernel, out(result), elements, among, invert);
  return true;
}

}  // namespace loom::ops
