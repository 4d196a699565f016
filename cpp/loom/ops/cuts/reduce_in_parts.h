// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs a reduction in parts: blocks reduce chunks of the input to partial results, which are then
// reduced in their order. `Reduction` has const members:
//   accumulator(dtype) is the dtype of partial results, for results of `dtype`,
//   part(in, dims, keepdim, to) reduces a chunk,
//   combine(parts, reduced_elements, to) reduces dimension 0 of the partial results.
// Thread: launch_in_parts() any, the rest on a worker.

#include "loom/ops/cuts/reduce.h"

#include <ATen/ops/empty.h>

namespace loom::ops {

template <class Reduction>
void reduce_chunks(Grid& grid, const TensorRef& output, const TensorRef& input,
                   const Reduction& reduction, Chunks chunks, c10::IntArrayRef dims, bool keepdim) {
  at::Tensor result = output.alias();
  // A flat range is reduced to a number, whatever keepdim made of the result's shape.
  if (chunks.dim == Chunks::kFlat) result = result.as_strided({}, {});
  const at::DimVector all_dims{0};
  if (chunks.dim == Chunks::kFlat) {
    dims = all_dims;
    keepdim = false;
  }
  at::DimVector sizes{chunks.count()};
  sizes.append(result.sizes().begin(), result.sizes().end());
  const at::Tensor parts = at::empty(
      sizes, c10::TensorOptions(c10::kCPU).dtype(reduction.accumulator(result.scalar_type())));
  grid.run(chunks.count(), [&](std::int64_t index) {
    at::Tensor to = parts.select(0, index);
    reduction.part(chunks.part(input, index), dims, keepdim, to);
  });
  const double reduced = static_cast<double>(input.numel()) / static_cast<double>(result.numel());
  reduction.combine(parts, reduced, result);
}

/// Queues it. `chunks` is from cut_reduced().
template <class Reduction>
void launch_in_parts(const char* name, const Reduction& reduction, const at::Tensor& output,
                     const at::Tensor& input, Chunks chunks, Reduced reduced) {
  const at::DimVector dims = reduced.dims(input.dim());
  launch(name, Custom{}, reduce_chunks<Reduction>, out(output), input, reduction, chunks,
         c10::IntArrayRef(dims), reduced.keepdim);
}

}  // namespace loom::ops
