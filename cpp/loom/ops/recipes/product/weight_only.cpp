// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/weight_only.h"

#include "loom/base/ceil_div.h"
#include "loom/device/scratch.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/gemm/few_rows.h"
#include "loom/kernels/gemm/int4_rows.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch_open.h"

#include <ATen/Version.h>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::gemm::FewRows;
using kernels::gemm::Int4Rows;

// Bytes of weights that make a block for up to four rows; as many are one core's. A core that comes
// later, or reads more slowly, is made up for within a microsecond.
constexpr std::int64_t kBlockBytes = 16 * 1024;
constexpr std::int64_t kMostBlocks = 256;

// From so many rows on weights are widened once for all of them, and multiplied as bfloat16.
constexpr std::int64_t kWidenedRows = 8;
// Columns whose weights are widened at a time: a core's caches keep them.
constexpr std::int64_t kWidenedColumns = 16;

const Scratch t_sums, t_left, t_widened;

/// Rows of T times the rows of `weight`, as many as make a block, to `sums`.
template <class T>
void multiply_int8(const FewRows<Stored<T>, std::int8_t>& product) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (product.rows >= kWidenedRows && kernels::gemm::multiply_few_rows_bfloat16.available()) {
      const std::int64_t inner = product.inner;
      auto* const widened = t_widened.get<Stored<T>>(kWidenedColumns * inner);
      for (std::int64_t first = 0; first < product.columns; first += kWidenedColumns) {
        const std::int64_t columns = std::min(kWidenedColumns, product.columns - first);
        kernels::widen_bytes(widened, product.matrix + first * inner, columns * inner);
        kernels::gemm::multiply_few_rows_bfloat16({product.rows, columns, inner, product.left,
                                                   product.left_ld, widened, inner,
                                                   product.to + first, product.ld});
      }
      return;
    }
  }
  const std::int64_t rows = product.rows, inner = product.inner;
  const float* left = reinterpret_cast<const float*>(product.left);
  std::int64_t left_ld = product.left_ld;
  if constexpr (!std::is_same_v<T, float>) {
    // A column meets what was widened once.
    float* const floats = t_left.get<float>(rows * inner);
    for (std::int64_t i = 0; i < rows; ++i) {
      kernels::widen_row<Stored<T>>(floats + i * inner, product.left + i * left_ld, inner);
    }
    left = floats;
    left_ld = inner;
  }
  kernels::gemm::multiply_few_rows<FewRows<float, std::int8_t>>(
      {rows, product.columns, inner, left, left_ld, product.matrix, product.stride, product.to,
       product.ld});
}

template <class T>
void run_int8(Grid& grid, const TensorRef& result, const TensorRef& left, const TensorRef& weight,
              const TensorRef& scales) {
  const std::int64_t rows = left.sizes()[0], inner = left.sizes()[1], all = weight.sizes()[0];
  const std::int64_t block = weight_block(rows, all, weight.numel(), 16);
  const bool at_once = finishes_at_once(rows * block, rows * all);
  grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
    const std::int64_t first = index * block, columns = std::min(block, all - first);
    float* const sums = t_sums.get<float>(rows * columns);
    multiply_int8<T>({rows, columns, inner, elements<const Stored<T>>(left), inner,
                      reinterpret_cast<const std::int8_t*>(weight.data()) + first * inner, inner,
                      sums, columns});
    for (std::int64_t i = 0; i < rows; ++i) {
      kernels::scale_row<Stored<T>>(elements<Stored<T>>(result) + i * all + first,
                                    sums + i * columns, elements<Stored<T>>(scales) + first,
                                    columns);
    }
    if (!at_once) grid.finish(0, rows, first, columns);
  });
  if (at_once) grid.finish(0, rows, 0, all);
}

/// All rows as floats.
template <class T>
const float* floats_of(const TensorRef& left) {
  float* const floats = t_left.get<float>(left.numel());
  kernels::widen_row<Stored<T>>(floats, elements<Stored<T>>(left), left.numel());
  return floats;
}

template <class T>
void run_int4(Grid& grid, const TensorRef& result, const TensorRef& left, const TensorRef& weight,
              const TensorRef& scales, std::int64_t group, Int4Packing packing) {
  const std::int64_t rows = left.sizes()[0], inner = left.sizes()[1], all = weight.sizes()[0];
  const std::int64_t block = weight_block(rows, all, 2 * weight.numel(), packing.columns);
  const bool at_once = finishes_at_once(rows * block, rows * all);
  // Of bfloat16, which the kernel has as it is, only the last columns need floats.
  const bool as_it_is = left.dtype() == c10::ScalarType::BFloat16;
  grid.run_by_any(ceil_div(all, block), [&](std::int64_t index) {
    const std::int64_t end = std::min((index + 1) * block, all);
    float* const sums = t_sums.get<float>(rows * packing.columns);
    for (std::int64_t first = index * block; first < end; first += packing.columns) {
      const std::int64_t columns = std::min(packing.columns, end - first);
      const auto multiply = [&]<class Left>(const Left* from, auto kernel) {
        kernel(kernels::gemm::Int4Rows<Stored<T>, Left>{
            .rows = rows,
            .columns = columns,
            .inner = inner,
            .group = group,
            .left = from,
            .left_ld = inner,
            .packed = reinterpret_cast<const std::uint8_t*>(weight.data()) + first * inner / 2,
            .split = packing.split && columns == packing.columns,
            .scales = elements<const Stored<T>>(scales) + 2 * first,
            .scales_ld = 2 * all,
            .to = sums,
            .ld = columns});
      };
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (as_it_is && columns == packing.columns) {
          multiply(elements<const Stored<T>>(left), kernels::gemm::multiply_int4_rows_bfloat16);
        } else {
          multiply(as_it_is ? floats_of<T>(left) : reinterpret_cast<const float*>(left.data()),
                   kernels::gemm::multiply_int4_rows<Stored<T>>);
        }
      } else {
        multiply(reinterpret_cast<const float*>(left.data()),
                 kernels::gemm::multiply_int4_rows<Stored<T>>);
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        kernels::round_row<Stored<T>>(elements<Stored<T>>(result) + i * all + first,
                                      sums + i * columns, columns);
      }
    }
    if (!at_once) grid.finish(0, rows, index * block, end - index * block);
  });
  if (at_once) grid.finish(0, rows, 0, all);
}

}  // namespace

std::int64_t weight_block(std::int64_t rows, std::int64_t columns, std::int64_t bytes,
                          std::int64_t unit) {
  const std::int64_t work = bytes * ceil_div<std::int64_t>(rows, 4);
  const auto pieces = std::bit_ceil(static_cast<std::uint64_t>(ceil_div(work, kBlockBytes)));
  const auto most = std::min(static_cast<std::int64_t>(pieces), kMostBlocks);
  return round_up(ceil_div(columns, most), unit);
}

Int4Packing Int4Packing::of_this_processor() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return {.columns = 64, .split = true};
  return {.columns = 32, .split = capability == "AVX2"};
}

bool Int4Packing::takes(c10::ScalarType left) const {
  if (left != c10::ScalarType::BFloat16) return left == c10::ScalarType::Float;
  return split && columns == kernels::gemm::kMaxInt4Columns &&
         kernels::gemm::multiply_int4_rows_bfloat16.available();
}

void int8_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                  const TensorRef& weight, const TensorRef& scales) {
  with_floats(result.dtype(), [&](auto element) {
    run_int8<decltype(element)>(grid, result, left, weight, scales);
  });
}

void int4_product(Grid& grid, const TensorRef& result, const TensorRef& left,
                  const TensorRef& weight, const TensorRef& scales, std::int64_t group,
                  Int4Packing packing) {
  with_floats(result.dtype(), [&](auto element) {
    run_int4<decltype(element)>(grid, result, left, weight, scales, group, packing);
  });
}

}  // namespace loom::ops
