// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/read_rows.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/element_order.h"
#include "loom/kernels/index/elements.h"
#include "loom/ops/launch/elements.h"

#include <algorithm>
#include <atomic>
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

bool read_items(Grid& grid, const TensorRef& result, const TensorRef& self, const TensorRef& index,
                const Lines& lines) {
  const std::int64_t total = lines.outer * lines.count;
  const std::int64_t block =
      block_length(total, 4 + static_cast<double>(lines.inner) / sizeof(float));
  const std::int64_t step = index.numel() == lines.count ? 0 : lines.count;
  std::atomic<bool> all_there = true;
  grid.run_by_any(ceil_div(total, block), [&](std::int64_t i) {
    const std::int64_t begin = i * block, end = std::min(total, begin + block);
    const auto gather = [&](const auto* which) {
      return kernels::index::gather_items(result.data(), self.data(), which, lines, begin, end,
                                          step);
    };
    const bool there = index.dtype() == c10::kLong ? gather(elements<const std::int64_t>(index))
                                                   : gather(elements<const std::int32_t>(index));
    if (!there) all_there = false;
  });
  return all_there;
}

}  // namespace loom::ops
