// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/aten/counted/positions.h"

#include "loom/backend/stream.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/counted/nonzero_test.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <algorithm>
#include <vector>

namespace loom::ops {
namespace {

std::int64_t blocks_of(std::int64_t elements) { return ceil_div(elements, Counted::kBlock); }

// Runs on the worker.
void count_blocks(Grid& grid, const TensorRef& before, const TensorRef& elements) {
  auto* const counts = reinterpret_cast<std::int64_t*>(before.data());
  const std::int64_t total = elements.numel(), blocks = blocks_of(total);
  with_nonzero_test(elements.dtype(), elements.data(), [&](auto is_nonzero) {
    grid.run_by_any(blocks, [&](std::int64_t block) {
      const std::int64_t begin = block * Counted::kBlock;
      const std::int64_t end = std::min(total, begin + Counted::kBlock);
      std::int64_t count = 0;
      for (std::int64_t i = begin; i < end; ++i) count += is_nonzero(i) ? 1 : 0;
      counts[block + 1] = count;
    });
  });
  counts[0] = 0;
  for (std::int64_t block = 0; block < blocks; ++block) counts[block + 1] += counts[block];
}

/// Walks elements in row-major order and notes the places of some.
class Places {
 public:
  Places(const TensorRef& result, c10::IntArrayRef sizes, std::int64_t element)
      : data_(reinterpret_cast<std::int64_t*>(result.data())),
        row_(result.strides()[0]),
        column_(result.strides()[1]),
        sizes_(sizes),
        place_(sizes.size()) {
    for (std::size_t d = sizes.size(); d-- > 0;) {
      place_[d] = element % sizes[d];
      element /= sizes[d];
    }
  }

  /// Elements [begin, end) have the rows [row, last).
  template <class Test>
  void fill(const Test& is_nonzero, std::int64_t begin, std::int64_t end, std::int64_t row,
            std::int64_t last) {
    const std::size_t along = sizes_.size() - 1;
    while (begin < end && row < last) {
      const std::int64_t length = std::min(sizes_[along] - place_[along], end - begin);
      const std::int64_t first = row;
      std::int64_t* const to = data_ + static_cast<std::int64_t>(along) * column_;
      // What is written is overwritten until it is right; nothing beyond the last row.
      for (std::int64_t i = 0; i < length && row < last; ++i) {
        to[row * row_] = place_[along] + i;
        row += is_nonzero(begin + i) ? 1 : 0;
      }
      for (std::size_t d = 0; d < along; ++d) {
        for (std::int64_t r = first; r < row; ++r) {
          data_[r * row_ + static_cast<std::int64_t>(d) * column_] = place_[d];
        }
      }
      begin += length;
      next_line();
    }
  }

 private:
  void next_line() {
    place_.back() = 0;
    for (std::size_t d = sizes_.size() - 1; d-- > 0;) {
      if (++place_[d] < sizes_[d]) return;
      place_[d] = 0;
    }
  }

  std::int64_t* const data_;
  const std::int64_t row_, column_;
  const c10::IntArrayRef sizes_;
  std::vector<std::int64_t> place_;
};

// Runs on the worker.
void fill_positions(Grid& grid, const TensorRef& result, const TensorRef& elements,
                    const TensorRef& before) {
  const auto* const counts = reinterpret_cast<const std::int64_t*>(before.data());
  const std::int64_t total = elements.numel();
  with_nonzero_test(elements.dtype(), elements.data(), [&](auto is_nonzero) {
    grid.run_by_any(blocks_of(total), [&](std::int64_t block) {
      const std::int64_t begin = block * Counted::kBlock;
      Places(result, elements.sizes(), begin)
          .fill(is_nonzero, begin, std::min(total, begin + Counted::kBlock), counts[block],
                counts[block + 1]);
    });
  });
}

}  // namespace

Counted count_nonzero_blocks(const char* name, const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(with_nonzero_test(self.scalar_type(), nullptr, [](auto) {}), '"',
                              name, "_count_cpu\" not implemented for '", self.scalar_type(), "'");
  current_queue(self.device().index())
      .check_not_captured(std::string("aten::") + name,
                          "the host has to know the size of its result, which depends on data");
  Counted counted{.elements = self.contiguous(), .before = {}};
  const std::int64_t blocks = blocks_of(self.numel());
  counted.before = empty({blocks + 1}, c10::kLong, self.device());
  if (blocks == 0) return counted;
  launch(name, Custom{}, count_blocks, out(counted.before), counted.elements);
  counted.total = counted.before.select(0, blocks).item<std::int64_t>();
  return counted;
}

void launch_positions(const char* name, const at::Tensor& result, const Counted& counted) {
  if (result.numel() == 0) return;
  launch(name, Custom{}, fill_positions, out(result), counted.elements, counted.before);
}

at::Tensor vector_positions(const char* name, const at::Tensor& vector) {
  const Counted counted = count_nonzero_blocks(name, vector);
  at::Tensor result = empty({counted.total, 1}, c10::kLong, vector.device());
  launch_positions(name, result, counted);
  return result.squeeze(1);
}

}  // namespace loom::ops
