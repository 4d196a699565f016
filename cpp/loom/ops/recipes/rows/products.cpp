// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/rows/products.h"

#include "loom/base/blocks.h"
#include "loom/base/simd_level.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/norm/products.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/rows/middle.h"
#include "loom/ops/recipes/rows/row_scratch.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace loom::ops {
namespace {

// Of an element, in the unit of Pointwise, and of what a product is begun with.
constexpr double kElementCost = 0.4, kRowCost = 20;
// Elements of a row that a block of columns has: whole cache lines.
constexpr std::int64_t kColumns = 256;
// Products that are enough to share; fewer are made of parts, of so many elements at the least.
constexpr std::int64_t kEnough = 16, kLeastPart = 4096;
// Fewer elements beside each other are no vectors, and fewer of a row take as long in ATen's, but
// for bfloat16, of which it rounds each.
constexpr std::int64_t kFewestBeside = 16, kShortestRow = 32;

using kernels::norm::Product;

/// Whether there are kernels for the dtype.
bool is_multiplied(c10::ScalarType dtype) {
  return is_row_element(dtype) || dtype == c10::kDouble || dtype == c10::kLong;
}

template <class T>
Product<T>* product_scratch(std::int64_t count) {
  return reinterpret_cast<Product<T>*>(
      row_scratch(count * (sizeof(Product<T>) / sizeof(float)), 1));
}

template <class T>
void put_products(T* to, const Product<T>* products, std::int64_t count) {
  if constexpr (sizeof(T) == 8) {
    std::copy_n(products, count, to);
  } else {
    kernels::round_row<T>(to, products, count);
  }
}

/// Products of items [begin, end) of what is reduced, for some of the rows or columns.
template <class T>
void multiply(const T* from, const Middle& m, std::int64_t outer, const Blocks::Range& columns,
              const Blocks::Range& items, Product<T>* to) {
  const T* const first = from + (outer * m.summed + items.first) * m.inner + columns.first;
  if (m.inner == 1) {
    *to = kernels::norm::product_of<T>(first, items.count());
  } else {
    kernels::norm::products_of_columns<T>(first, items.count(), m.inner, to, columns.count());
  }
}

template <class T>
void in_parts(Grid& grid, const T* from, T* to, const Middle& m, const Blocks& parts) {
  const std::int64_t count = m.outer * m.inner;
  std::vector<Product<T>> products(static_cast<std::size_t>(count * parts.count()));
  grid.run_by_any(m.outer * parts.count(), [&](std::int64_t index) {
    const std::int64_t outer = index % m.outer, part = index / m.outer;
    multiply(from, m, outer, {0, m.inner}, parts[part],
             &products[static_cast<std::size_t>(part * count + outer * m.inner)]);
  });
  std::vector<Product<T>> all(static_cast<std::size_t>(count));
  kernels::norm::products_of_columns<Product<T>>(products.data(), parts.count(), count, all.data(),
                                                 count);
  put_products<T>(to, all.data(), count);
}

template <class T>
void of_rows(Grid& grid, const T* from, T* to, const Middle& m) {
  const Blocks blocks(
      m.outer,
      std::min(kColumns,
               block_length(m.outer, kRowCost + kElementCost * static_cast<double>(m.summed))));
  const auto product = kernels::norm::product_of<T>.of(simd_level());
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    Product<T>* const products = product_scratch<T>(kColumns);
    const auto block = blocks[index];
    for (std::int64_t row = block.first; row < block.last; ++row) {
      products[row - block.first] = product(from + row * m.summed, m.summed);
    }
    put_products<T>(to + block.first, products, block.count());
  });
}

template <class T>
void of_columns(Grid& grid, const T* from, T* to, const Middle& m) {
  const Blocks across(m.inner, kColumns);
  const std::int64_t units = m.outer * across.count();
  const double cost = kRowCost + kElementCost * static_cast<double>(m.summed * m.inner) /
                                     static_cast<double>(across.count());
  const Blocks blocks(units, block_length(units, cost));
  grid.run_by_any(blocks.count(), [&](std::int64_t index) {
    Product<T>* const products = product_scratch<T>(kColumns);
    const auto block = blocks[index];
    for (std::int64_t unit = block.first; unit < block.last; ++unit) {
      const std::int64_t outer = unit / across.count();
      const auto columns = across[unit % across.count()];
      multiply(from, m, outer, columns, {0, m.summed}, products);
      put_products<T>(to + outer * m.inner + columns.first, products, columns.count());
    }
  });
}

void products(Grid& grid, const TensorRef& result, const TensorRef& input, const Middle& m) {
  const auto run = [&]<class T>() {
    const T* const from = elements<const T>(input);
    T* const to = elements<T>(result);
    const std::int64_t least = std::max<std::int64_t>(kLeastPart / m.inner, 1);
    const Blocks parts(
        m.summed,
        std::max(least, block_length(m.summed, kElementCost * static_cast<double>(m.inner))));
    if (m.outer * ceil_div(m.inner, kColumns) < kEnough && parts.count() > 1) {
      in_parts(grid, from, to, m, parts);
    } else {
      m.inner == 1 ? of_rows(grid, from, to, m) : of_columns(grid, from, to, m);
    }
  };
  if (input.dtype() == c10::kDouble) return run.template operator()<double>();
  if (input.dtype() == c10::kLong) return run.template operator()<std::int64_t>();
  with_row_element(input.dtype(), run);
}

}  // namespace

bool launch_products(const char* name, const at::Tensor& result, const at::Tensor& self,
                     Reduced reduced) {
  if (!is_multiplied(self.scalar_type()) || result.scalar_type() != self.scalar_type() ||
      self.numel() == 0 || self.dim() == 0 || self.is_neg() || self._is_zerotensor()) {
    return false;
  }
  const std::optional<Middle> middle = middle_of(self, reduced);
  if (!middle || (middle->inner > 1 && middle->inner < kFewestBeside) ||
      (self.scalar_type() != c10::kBFloat16 && middle->inner == 1 &&
       middle->summed < kShortestRow) ||
      !follows(result, self, reduced)) {
    return false;
  }
  launch(name, Custom{}, products, out(result), self, *middle);
  return true;
}

}  // namespace loom::ops
