// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/sort.h"

#include "loom/device/scratch.h"
#include "loom/kernels/sort/sort_row.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/topk_cpu_dispatch.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>
#include <cstddef>
#include <limits>

namespace loom::ops {
namespace {

using namespace kernels::sort;

// A shorter row is merged in less time than it takes to count its digits.
constexpr std::int64_t kShortRow = 256;
// Items of a block where the cores share a row, which is worth it from twice as many on.
constexpr std::int64_t kBlock = 1 << 14, kMaxBlocks = 64;
// Rows from which on each is a core's own.
constexpr std::int64_t kManyRows = 8;

const Scratch row_scratch;

/// Where the rows of a tensor begin, one dimension being left out.
std::int64_t start_of_row(const TensorRef& tensor, std::int64_t dim, std::int64_t row) {
  std::int64_t offset = 0;
  for (std::int64_t d = tensor.dim() - 1; d >= 0; --d) {
    if (d == dim) continue;
    offset += row % tensor.sizes()[d] * tensor.strides()[d];
    row /= tensor.sizes()[d];
  }
  return offset;
}

template <class Keys>
void sort_rows(Grid& grid, const TensorRef& values, const TensorRef& indices, const TensorRef& self,
               std::byte* shared, std::int64_t dim, bool descending) {
  using Raw = typename Keys::Raw;
  const std::int64_t count = self.sizes()[dim], rows = self.numel() / count;
  const auto row_at = [&](std::int64_t r) {
    return Row<Raw>{reinterpret_cast<const Raw*>(self.data()) + start_of_row(self, dim, r),
                    reinterpret_cast<Raw*>(values.data()) + start_of_row(values, dim, r),
                    reinterpret_cast<std::int64_t*>(indices.data()) + start_of_row(indices, dim, r),
                    count,
                    self.strides()[dim],
                    values.strides()[dim],
                    indices.strides()[dim]};
  };
  if (shared != nullptr) {
    const std::int64_t length = std::max(kBlock, ceil_div(count, kMaxBlocks));
    for (std::int64_t r = 0; r < rows; ++r) {
      sort_row<Keys>(row_at(r), descending, length, shared,
                     [&](std::int64_t blocks, const auto& body) { grid.run_by_any(blocks, body); });
    }
    return;
  }
  const std::int64_t block = block_length(rows, 30 * static_cast<double>(count));
  grid.run_by_any(ceil_div(rows, block), [&](std::int64_t b) {
    auto* const scratch = row_scratch.get<std::byte>(scratch_bytes<Keys>(count));
    for (std::int64_t r = b * block; r < std::min(rows, (b + 1) * block); ++r) {
      if (count < kShortRow) {
        sort_short_row<Keys>(row_at(r), descending, scratch);
      } else {
        sort_row<Keys>(row_at(r), descending, count, scratch,
                       [](std::int64_t, const auto& body) { body(0); });
      }
    }
  });
}

/// Calls run(Keys()) for the dtype; false if there are none.
template <class Run>
bool with_keys(c10::ScalarType dtype, Run&& run) {
  switch (dtype) {
    case c10::kFloat:
      return run(FloatKeys32{}), true;
    case c10::kDouble:
      return run(FloatKeys64{}), true;
    case c10::kBFloat16:
      return run(BFloat16Keys{}), true;
    case c10::kHalf:
      return run(FloatKeys16{}), true;
    case c10::kLong:
      return run(IntegerKeys<std::int64_t>{}), true;
    case c10::kInt:
      return run(IntegerKeys<std::int32_t>{}), true;
    case c10::kShort:
      return run(IntegerKeys<std::int16_t>{}), true;
    case c10::kChar:
      return run(IntegerKeys<std::int8_t>{}), true;
    case c10::kByte:
    case c10::kBool:
      return run(IntegerKeys<std::uint8_t>{}), true;
    default:
      return false;
  }
}

}  // namespace

bool launch_sort(const char* name, const at::Tensor& values, const at::Tensor& indices,
                 const at::Tensor& self, std::int64_t dim, bool descending) {
  if (self.dim() == 0 || self.is_neg() || values.is_neg()) return false;
  dim = c10::maybe_wrap_dim(dim, self.dim());
  const std::int64_t count = self.size(dim);
  if (count < 2 || self.numel() == 0 || count > std::numeric_limits<std::uint32_t>::max() ||
      values.scalar_type() != self.scalar_type() || indices.scalar_type() != c10::kLong ||
      values.is_alias_of(self) || indices.is_alias_of(self) || indices.is_alias_of(values) ||
      at::has_internal_overlap(values) != at::MemOverlap::No ||
      at::has_internal_overlap(indices) != at::MemOverlap::No) {
    return false;
  }
  return with_keys(self.scalar_type(), [&]<class Keys>(Keys) {
    const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& places,
                           const TensorRef& from, const TensorRef& scratch, std::int64_t along,
                           bool falling) {
      sort_rows<Keys>(grid, to, places, from, scratch.defined() ? scratch.data() : nullptr, along,
                      falling);
    };
    const bool shares = self.numel() / count < kManyRows && count >= 2 * kBlock;
    at::Tensor scratch;
    if (shares) scratch = empty({scratch_bytes<Keys>(count)}, c10::kByte, self.device());
    launch(name, Custom{}, kernel, out(values), out(indices), self, out(scratch), dim, descending);
  });
}

bool launch_topk(const char* name, const at::Tensor& values, const at::Tensor& indices,
                 const at::Tensor& self, std::int64_t k, bool largest, bool sorted) {
  // Elements of a part: so many that looking at them takes some tens of microseconds.
  constexpr std::int64_t kPart = 1 << 14;
  const std::int64_t count = self.numel(), part = std::max(kPart, 8 * k);
  const bool row =
      self.dim() > 0 && *std::max_element(self.sizes().begin(), self.sizes().end()) == count;
  if (!row || count < 2 * part || k < 1 || !self.is_contiguous() || self.is_neg() ||
      !values.is_contiguous() || !indices.is_contiguous() || values.is_alias_of(self) ||
      indices.is_alias_of(self) || values.numel() != k) {
    return false;
  }
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& places,
                         const TensorRef& from, std::int64_t parts, bool most, bool in_order) {
    const std::int64_t total = from.numel(), chosen = to.numel();
    const at::Tensor candidates = at::empty({parts, chosen}, from.dtype());
    const at::Tensor origins = at::empty({parts, chosen}, c10::kLong);
    grid.run(parts, [&](std::int64_t p) {
      const std::int64_t begin = p * total / parts, end = (p + 1) * total / parts;
      at::Tensor best = candidates.select(0, p), where = origins.select(0, p);
      at::cpu::topk_outf(from.alias_flat(begin, end - begin), chosen, 0, most, false, best, where);
      where.add_(begin);
    });
    const auto [best, where] = at::cpu::topk(candidates.flatten(), chosen, 0, most, in_order);
    to.alias().copy_(best.view(to.sizes()));
    places.alias().copy_(origins.flatten().index_select(0, where).view(places.sizes()));
  };
  launch(name, Custom{}, kernel, out(values), out(indices), self, count / part, largest, sorted);
  return true;
}

}  // namespace loom::ops
