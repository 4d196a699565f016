// SPDX-License-Identifier: BSD-3-Clause
// nonzero and masked_select.
#include "loom/backend/registration.h"
#include "loom/kernels/index/chosen.h"
#include "loom/ops/aten/counted/blocks.h"
#include "loom/ops/aten/counted/positions.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/meta/structured_meta.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <array>

namespace loom::ops {
namespace {

at::Tensor nonzero(const at::Tensor& self) {
  const Counted counted = count_nonzero_blocks("nonzero", self);
  // Columns lie together, as on every device.
  at::Tensor result =
      empty_strided({counted.total, self.dim()}, {1, counted.total}, c10::kLong, self.device());
  launch_positions("nonzero", result, counted);
  return result;
}

void check_output(const char* name, int argument, const at::Tensor& self,
                  const at::Tensor& result) {
  if (result.device() != self.device()) {
    throw_device_mismatch(name, "out", argument, self.device(), result);
  }
  at::assert_no_internal_overlap(result);
  at::assert_no_overlap(result, self);
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& result) {
  TORCH_CHECK(result.scalar_type() == c10::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type",
              result.scalar_type());
  check_output("aten::nonzero", 1, self, result);
  const Counted counted = count_nonzero_blocks("nonzero", self);
  if (at::native::resize_output(result, {counted.total, self.dim()})) {
    result.as_strided_({counted.total, self.dim()}, {1, counted.total});
  }
  launch_positions("nonzero", result, counted);
  return result;
}

// Runs on the worker.
void select_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                     const TensorRef& mask, const TensorRef& before) {
  using Item16 = std::array<std::uint64_t, 2>;
  const kernels::index::Nonzero<std::uint8_t> is_chosen{elements<const std::uint8_t>(mask)};
  const auto select = [&]<class Item>(Item) {
    const auto copy = [to = elements<Item>(result), from = elements<const Item>(self)](
                          std::int64_t row, std::int64_t i) { to[row] = from[i]; };
    fill_rows(grid, before, mask.numel(),
              [&](std::int64_t begin, std::int64_t, std::int64_t row, std::int64_t last) {
                kernels::index::write_chosen(is_chosen, begin, row, last, copy);
              });
  };
  switch (result.itemsize()) {
    case 1:
      return select(std::uint8_t{});
    case 2:
      return select(std::uint16_t{});
    case 4:
      return select(std::uint32_t{});
    case 8:
      return select(std::uint64_t{});
    default:
      return select(Item16{});
  }
}

/// The mask's places, of tensors that broadcast.
struct Selection {
  at::Tensor elements;
  Counted mask;
};

Selection count_selected(const at::Tensor& self, const at::Tensor& mask) {
  const at::DimVector sizes = at::infer_size_dimvector(mask.sizes(), self.sizes());
  return {self.expand(sizes).contiguous(),
          count_nonzero_blocks("masked_select", mask.expand(sizes))};
}

void launch_selection(const at::Tensor& result, const Selection& selection) {
  if (result.numel() == 0) return;
  launch("masked_select", Custom{}, select_elements, out(result), selection.elements,
         selection.mask.elements, selection.mask.before);
}

void check_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "masked_select: expected BoolTensor for mask");
  if (mask.device() != self.device()) {
    throw_device_mismatch("aten::masked_select", "", 1, self.device(), mask);
  }
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  check_mask(self, mask);
  const Selection selection = count_selected(self, mask);
  at::Tensor result = empty({selection.mask.total}, self.scalar_type(), self.device());
  launch_selection(result, selection);
  return result;
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& result) {
  check_mask(self, mask);
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  check_output("aten::masked_select", 2, self, result);
  at::assert_no_overlap(result, mask);
  const Selection selection = count_selected(self, mask);
  at::native::resize_output(result, {selection.mask.total});
  if (result.is_contiguous()) {
    launch_selection(result, selection);
    return result;
  }
  const at::Tensor dense = empty(result.sizes(), result.scalar_type(), result.device());
  launch_selection(dense, selection);
  return result.copy_(dense);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", TORCH_FN(nonzero));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(masked_select));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
}

}  // namespace loom::ops
