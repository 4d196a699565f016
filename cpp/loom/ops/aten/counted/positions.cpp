// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/aten/counted/positions.h"

#include "loom/ops/aten/counted/blocks.h"
#include "loom/ops/aten/counted/nonzero_test.h"
#include "loom/ops/launch/empty.h"

#include <string>

namespace loom::ops {
namespace {

// Runs on the worker.
void count_blocks(Grid& grid, const TensorRef& before, const TensorRef& self) {
  with_nonzero_test(self.dtype(), self.data(), [&](auto is_nonzero) {
    count_rows(grid, before, self.numel(), [&](std::int64_t begin, std::int64_t end) {
      return kernels::index::count_chosen(is_nonzero, begin, end);
    });
  });
}

// Runs on the worker.
void fill_positions(Grid& grid, const TensorRef& result, const TensorRef& self,
                    const TensorRef& before) {
  const c10::IntArrayRef sizes = self.sizes(), steps = result.strides();
  with_nonzero_test(self.dtype(), self.data(), [&](auto is_nonzero) {
    fill_rows(grid, before, self.numel(),
              [&](std::int64_t begin, std::int64_t end, std::int64_t row, std::int64_t last) {
                kernels::index::Coordinates(elements<std::int64_t>(result), steps[0], steps[1],
                                            {sizes.data(), sizes.size()}, begin)
                    .write(is_nonzero, begin, end, row, last);
              });
  });
}

}  // namespace

Counted count_nonzero_blocks(const char* name, const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(with_nonzero_test(self.scalar_type(), nullptr, [](auto) {}), '"',
                              name, "_count_cpu\" not implemented for '", self.scalar_type(), "'");
  check_may_wait(std::string("aten::") + name, self.device());
  Counted counted{.elements = self.contiguous(), .before = {}};
  const std::int64_t blocks = counted_blocks(self.numel());
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
