// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/look_up.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace loom::ops {
namespace {

// More than these are not sorted while the cores wait.
constexpr std::int64_t kMostSorted = 1 << 14;
// A table that stays in a core's caches.
constexpr std::uint64_t kMostInTable = 1 << 17;

/// Those that elements are looked for among.
template <class T>
class Sorted {
 public:
  Sorted(const T* elements, std::int64_t count) : sorted_(elements, elements + count) {
    if constexpr (std::is_floating_point_v<T>) {
      std::erase_if(sorted_, [](T x) { return std::isnan(x); });  // equal to none
    }
    std::sort(sorted_.begin(), sorted_.end());
    half_ = std::bit_floor(sorted_.size());
  }
  [[nodiscard]] bool has(T element) const noexcept {
    // The last one that is not above it, without branches.
    const T* at = sorted_.data();
    const T* const rest = at + (sorted_.size() - half_);
    at = half_ != 0 && *rest <= element ? rest : at;
    for (std::size_t step = half_ / 2; step != 0; step /= 2) {
      at = at[step] <= element ? at + step : at;
    }
    return half_ != 0 && *at == element;
  }

 private:
  std::vector<T> sorted_;
  std::size_t half_;  // a power of 2, of at least half of them
};

/// The same of integers that lie near each other.
template <class T>
class Table {
 public:
  Table(const T* elements, std::int64_t count, T least, std::uint64_t range)
      : least_(static_cast<std::uint64_t>(least)), named_(range + 1) {
    for (std::int64_t i = 0; i < count; ++i) named_[place(elements[i])] = 1;
  }
  [[nodiscard]] bool has(T element) const noexcept {
    const std::uint64_t at = place(element);
    return at < named_.size() && named_[at] != 0;
  }

 private:
  [[nodiscard]] std::uint64_t place(T element) const noexcept {
    return static_cast<std::uint64_t>(element) - least_;
  }

  std::uint64_t least_;
  std::vector<std::uint8_t> named_;
};

template <class T, class Among>
void look_up(Grid& grid, const TensorRef& result, const TensorRef& self, const Among& among,
             bool invert, double cost) {
  const std::int64_t count = self.numel(), length = block_length(count, cost);
  const auto* const from = elements<const T>(self);
  auto* const to = elements<bool>(result);
  grid.run_by_any(ceil_div(count, length), [&](std::int64_t block) {
    const std::int64_t end = std::min(count, (block + 1) * length);
    for (std::int64_t i = block * length; i < end; ++i) to[i] = among.has(from[i]) != invert;
  });
}

template <class T>
void look_up_all(Grid& grid, const TensorRef& result, const TensorRef& self, const TensorRef& among,
                 bool invert) {
  const auto* const others = elements<const T>(among);
  const std::int64_t count = among.numel();
  if constexpr (std::is_integral_v<T>) {
    if (count > 0) {
      const auto [least, most] = std::minmax_element(others, others + count);
      const std::uint64_t range =
          static_cast<std::uint64_t>(*most) - static_cast<std::uint64_t>(*least);
      if (range < kMostInTable) {
        return look_up<T>(grid, result, self, Table<T>(others, count, *least, range), invert, 4);
      }
    }
  }
  const double steps = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(count)));
  look_up<T>(grid, result, self, Sorted<T>(others, count), invert, 4 + 4 * steps);
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
