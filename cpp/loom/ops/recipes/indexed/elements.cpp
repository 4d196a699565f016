// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/elements.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/index/elements.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <atomic>

namespace loom::ops {
namespace {

using kernels::index::gather_range;
using kernels::index::scatter_part;

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && tensor.numel() > 0;
}

/// Runs scatter_part() on all parts of a result that has been made `self`.
template <class T, class... Write>
bool scatter_parts(Grid& grid, const TensorRef& result, const TensorRef& self,
                   const TensorRef& index, const Lines& lines, const Write&... writes) {
  T* const to = reinterpret_cast<T*>(result.data());
  const auto* const places = reinterpret_cast<const std::int64_t*>(index.data());
  const bool in_place = result.data() == self.data();
  const Parts parts(lines, (in_place ? 0 : self.numel()) + 2 * index.numel(),
                    /*cuts_items=*/false);
  std::atomic<bool> all_there = true;
  grid.run_by_any(parts.count(), [&](std::int64_t i) {
    const Part part = parts.at(i);
    copy_part(result.data(), self.data(), lines, part, sizeof(T));
    if (!(scatter_part(to, places, lines, part, writes) && ...)) all_there = false;
  });
  return all_there;
}

/// Calls scatter(combine, writes...), the first of which is an element's own value where only what
/// is written to it counts.
template <class T, class Scatter>
bool with_writes(const ElementWrite& write, const T* from, Scatter&& scatter) {
  return kernels::index::with_combination<T>(write.how, [&](auto combination) {
    const auto combine = [from, combination](T& to, std::int64_t i) {
      to = combination(to, from[i]);
    };
    if (write.counts_self) return scatter(combine);
    const auto begin = [first = kernels::index::neutral<T>(write.how)](T& to, std::int64_t) {
      to = first;
    };
    return scatter(begin, combine);
  });
}

bool is_half(c10::ScalarType dtype) { return dtype == c10::kHalf || dtype == c10::kBFloat16; }

// What elements of half types are combined in, and what with.
const Scratch kFloats;

/// Converts dense halves to floats, or back.
void convert(Grid& grid, const TensorRef& halves, float* floats, bool back) {
  const std::int64_t total = halves.numel(), block = block_length(total, 1);
  grid.run(ceil_div(total, block), [&](std::int64_t i) {
    const std::int64_t begin = i * block, length = std::min(block, total - begin);
    const std::int64_t step = 1;
    const at::Tensor narrow = halves.alias_flat(begin, length);
    const at::Tensor wide = make_alias({.data = reinterpret_cast<std::byte*>(floats + begin),
                                        .sizes = length,
                                        .strides = step,
                                        .dtype = c10::kFloat});
    (back ? narrow : wide).copy_(back ? wide : narrow);
  });
}

/// Half types are combined in float32 and rounded once, as ATen does.
bool scatter_halves(Grid& grid, const TensorRef& result, const TensorRef& self,
                    const TensorRef& index, const TensorRef& source, const Lines& lines,
                    const ElementWrite& write) {
  float* const sums = kFloats.get<float>(self.numel() + source.numel());
  float* const added = sums + self.numel();
  convert(grid, self, sums, /*back=*/false);
  convert(grid, source, added, /*back=*/false);
  const auto* const places = reinterpret_cast<const std::int64_t*>(index.data());
  const Parts parts(lines, 2 * index.numel(), /*cuts_items=*/false);
  std::atomic<bool> all_there = true;
  with_writes(write, added, [&](auto... writes) {
    grid.run_by_any(parts.count(), [&](std::int64_t i) {
      const Part part = parts.at(i);
      if (!(scatter_part(sums, places, lines, part, writes) && ...)) all_there = false;
    });
    return true;
  });
  if (all_there) convert(grid, result, sums, /*back=*/true);
  return all_there;
}

Lines lines_along(const TensorRef& self, const TensorRef& index, std::int64_t dim) {
  return lines_of(self.alias(), dim, index.sizes()[dim]);
}

}  // namespace

bool can_go_along(const at::Tensor& result, const at::Tensor& self, std::int64_t dim,
                  const at::Tensor& index) {
  if (!is_plain(result) || !is_plain(self) || !is_plain(index) ||
      index.scalar_type() != c10::kLong || index.dim() != self.dim() || self.dim() == 0 ||
      result.scalar_type() != self.scalar_type() ||
      !can_combine(Combine::kCopy, self.scalar_type())) {
    return false;
  }
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && index.size(d) != self.size(d)) return false;
  }
  return true;
}

at::Tensor item_index(const at::Tensor& result, const at::Tensor& self, std::int64_t dim,
                      const at::Tensor& index) {
  if (self.dim() == 0 || index.dim() != self.dim() || index.scalar_type() != c10::kLong ||
      !is_plain(result) || !is_plain(self) || index.numel() == 0 ||
      result.scalar_type() != self.scalar_type() ||
      !can_combine(Combine::kCopy, self.scalar_type())) {
    return {};
  }
  bool common = true, expanded = false;
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (d == dim) continue;
    if (index.size(d) != self.size(d)) return {};
    const bool varies = index.size(d) > 1 && index.stride(d) != 0;
    if (d > dim && varies) return {};
    common = common && !varies;
    expanded = expanded || (d > dim && index.size(d) > 1);
  }
  if (!expanded) return {};
  const std::int64_t first = common ? dim : 0;
  return index
      .as_strided(index.sizes().slice(first, dim + 1 - first),
                  index.strides().slice(first, dim + 1 - first))
      .contiguous();
}

at::Tensor expand_items(at::Tensor places, const at::Tensor& like, std::int64_t dim) {
  while (places.dim() <= dim) places = places.unsqueeze(0);
  while (places.dim() < like.dim()) places = places.unsqueeze(-1);
  return places.expand(like.sizes());
}

bool can_scatter(Combine how, const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                 const at::Tensor& source) {
  const c10::ScalarType dtype = self.scalar_type();
  if (!is_plain(source) || source.dim() != self.dim() || source.scalar_type() != dtype ||
      !(can_combine(how, dtype) || is_half(dtype)) || how == Combine::kMean) {
    return false;
  }
  for (std::int64_t d = 0; d < self.dim(); ++d) {
    if (d == dim ? source.size(d) < index.size(d) : source.size(d) != index.size(d)) return false;
  }
  return true;
}

bool gather_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                     const TensorRef& index, std::int64_t dim) {
  const Lines lines = lines_along(self, index, dim);
  const std::int64_t total = result.numel(), block = block_length(total, 2);
  const auto* const places = reinterpret_cast<const std::int64_t*>(index.data());
  std::atomic<bool> all_there = true;
  kernels::with_bytes(result.itemsize(), [&]<class T>(T) {
    grid.run_by_any(ceil_div(total, block), [&](std::int64_t i) {
      const std::int64_t begin = i * block;
      if (!gather_range(reinterpret_cast<T*>(result.data()),
                        reinterpret_cast<const T*>(self.data()), places, lines, begin,
                        std::min(total, begin + block))) {
        all_there = false;
      }
    });
  });
  return all_there;
}

bool scatter_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                      const TensorRef& index, const TensorRef& source, const c10::Scalar& number,
                      const ElementWrite& write) {
  Lines lines = lines_along(self, index, write.dim);
  if (source.defined()) lines.supplied = source.sizes()[write.dim];
  if (write.how == Combine::kCopy) {
    return kernels::with_bytes(result.itemsize(), [&]<class T>(T) {
      if (!source.defined()) {
        const at::Tensor value = at::scalar_tensor(number, c10::TensorOptions(result.dtype()));
        const T with = *static_cast<const T*>(value.const_data_ptr());
        return scatter_parts<T>(grid, result, self, index, lines,
                                [with](T& to, std::int64_t) { to = with; });
      }
      const T* const from = reinterpret_cast<const T*>(source.data());
      return scatter_parts<T>(grid, result, self, index, lines,
                              [from](T& to, std::int64_t i) { to = from[i]; });
    });
  }
  if (is_half(result.dtype())) {
    return scatter_halves(grid, result, self, index, source, lines, write);
  }
  return with_number(result.dtype(), [&]<class T>(T) {
    return with_writes(write, reinterpret_cast<const T*>(source.data()), [&](auto... writes) {
      return scatter_parts<T>(grid, result, self, index, lines, writes...);
    });
  });
}

}  // namespace loom::ops
