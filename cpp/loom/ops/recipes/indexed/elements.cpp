// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/elements.h"

#include "loom/base/ceil_div.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <atomic>

namespace loom::ops {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && tensor.numel() > 0;
}

/// Where an index leads, and whether all that were asked for are there.
class Checked {
 public:
  explicit Checked(std::int64_t items) noexcept : items_(static_cast<std::uint64_t>(items)) {}
  /// Somewhere in the tensor in any case.
  [[nodiscard]] std::int64_t operator()(std::int64_t place) noexcept {
    const bool there = static_cast<std::uint64_t>(place) < items_;
    all_there_ &= there;
    return there ? place : 0;
  }
  [[nodiscard]] bool all_there() const noexcept { return all_there_; }

 private:
  const std::uint64_t items_;
  bool all_there_ = true;
};

/// Elements [begin, end) of the result. Their lines have an index of their own for each element.
template <class T>
bool gather_range(T* to, const T* from, const std::int64_t* index, const Lines& lines,
                  std::int64_t begin, std::int64_t end) {
  Checked checked(lines.items);
  const bool inner = lines.inner > 1;
  const std::int64_t length = inner ? lines.inner : lines.count;
  std::int64_t line = begin / length, at = begin % length;
  while (begin < end) {
    const std::int64_t count = std::min(length - at, end - begin);
    const T* const base = from + (inner ? line / lines.count : line) * lines.items * lines.inner;
    if (inner) {
      for (std::int64_t i = 0; i < count; ++i) {
        to[begin + i] = base[checked(index[begin + i]) * lines.inner + at + i];
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[begin + i] = base[checked(index[begin + i])];
    }
    begin += count;
    ++line;
    at = 0;
  }
  return checked.all_there();
}

/// Calls write(element, source) for every place of the index in a part.
template <class T, class Write>
bool scatter_part(T* to, const std::int64_t* index, const Lines& lines, const Part& part,
                  Write write) {
  Checked checked(lines.items);
  for (std::int64_t outer = part.outer_begin; outer < part.outer_end; ++outer) {
    T* const base = to + outer * lines.items * lines.inner;
    if (lines.inner == 1) {
      const std::int64_t* const places = index + outer * lines.count;
      const std::int64_t source = outer * lines.supplied;
      for (std::int64_t i = 0; i < lines.count; ++i) write(base[checked(places[i])], source + i);
      continue;
    }
    for (std::int64_t i = 0; i < lines.count; ++i) {
      const std::int64_t* const places = index + (outer * lines.count + i) * lines.inner;
      const std::int64_t source = (outer * lines.supplied + i) * lines.inner;
      for (std::int64_t c = part.column_begin; c < part.column_end; ++c) {
        write(base[checked(places[c]) * lines.inner + c], source + c);
      }
    }
  }
  return checked.all_there();
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

bool can_scatter(Combine how, const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                 const at::Tensor& source) {
  if (!is_plain(source) || source.dim() != self.dim() ||
      source.scalar_type() != self.scalar_type() || !can_combine(how, self.scalar_type()) ||
      how == Combine::kMean) {
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
  return with_number(result.dtype(), [&]<class T>(T) {
    const T* const from = reinterpret_cast<const T*>(source.data());
    return with_combination<T>(write.how, [&](auto combination) {
      const auto combine = [from, combination](T& to, std::int64_t i) {
        to = combination(to, from[i]);
      };
      if (write.counts_self) return scatter_parts<T>(grid, result, self, index, lines, combine);
      const auto begin = [first = neutral<T>(write.how)](T& to, std::int64_t) { to = first; };
      return scatter_parts<T>(grid, result, self, index, lines, begin, combine);
    });
  });
}

}  // namespace loom::ops
