// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/read_rows.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/element_order.h"

#include <algorithm>
#include <cstring>

namespace loom::ops {

bool read_rows(Grid& grid, const TensorRef& result, const TensorRef& self, const TensorRef& index) {
  const auto places = places_of(index, self.sizes()[0], /*wraps=*/true);
  if (!places) return false;
  const std::int64_t count = places->count();
  const auto bytes = static_cast<std::int64_t>(self.itemsize()) * self.numel() / self.sizes()[0];
  const std::int64_t block = block_length(count, 4 + static_cast<double>(bytes) / sizeof(float));
  const auto copy = [&](auto copy_row) {
    grid.run_by_any(ceil_div(count, block), [&](std::int64_t number) {
      const std::int64_t end = std::min(count, (number + 1) * block);
      for (std::int64_t i = number * block; i < end; ++i) copy_row(i, (*places)[i]);
    });
  };
  if (kernels::is_element(static_cast<std::size_t>(bytes))) {
    kernels::with_bytes(static_cast<std::size_t>(bytes), [&]<class T>(T) {
      std::byte* const to = result.data();
      const std::byte* const from = self.data();
      copy([to, from](std::int64_t i, std::int64_t place) {
        kernels::copy_item<T>(to + i * std::int64_t{sizeof(T)},
                              from + place * std::int64_t{sizeof(T)});
      });
    });
  } else {
    copy([&](std::int64_t i, std::int64_t place) {
      std::memcpy(result.data() + i * bytes, self.data() + place * bytes,
                  static_cast<std::size_t>(bytes));
    });
  }
  return true;
}

}  // namespace loom::ops
