// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// gather, scatter and their kin of dense tensors whose sizes are those of the index but along the
// dimension it goes along. ATen's kernels go from row to row where memory goes along them.

#include "loom/ops/launch/launch.h"
#include "loom/ops/recipes/indexed/lines.h"

#include <c10/core/Scalar.h>

namespace loom::ops {

/// Whether gather_elements() and scatter_elements() can: `self` and `result` along the dimension
/// that `index` goes along. Thread: any.
[[nodiscard]] bool can_go_along(const at::Tensor& result, const at::Tensor& self, std::int64_t dim,
                                const at::Tensor& index);

/// The places of an `index` that names whole items, since it is expanded over all dimensions behind
/// `dim`: dense, without those, and a vector if it is expanded over those before, too. Undefined if
/// it is not, or if `self` and `result` are not dense. Thread: any.
[[nodiscard]] at::Tensor item_index(const at::Tensor& result, const at::Tensor& self,
                                    std::int64_t dim, const at::Tensor& index);

/// What item_index() was made of, of the sizes of `like`. Thread: any.
[[nodiscard]] at::Tensor expand_items(at::Tensor places, const at::Tensor& like, std::int64_t dim);

/// Whether `source` has what scatter_elements() reads. Thread: any.
[[nodiscard]] bool can_scatter(Combine how, const at::Tensor& self, std::int64_t dim,
                               const at::Tensor& index, const at::Tensor& source);

/// False if the index names elements that are not there; what is written is then nothing that
/// counts. Thread: a worker.
[[nodiscard]] bool gather_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                                   const TensorRef& index, std::int64_t dim);

struct ElementWrite {
  Combine how = Combine::kCopy;
  std::int64_t dim = 0;
  bool counts_self = true;  ///< whether what was there counts
};

/// result = self, whose elements are then combined with those of `source`, or with `number` if it
/// is undefined. As gather_elements().
[[nodiscard]] bool scatter_elements(Grid& grid, const TensorRef& result, const TensorRef& self,
                                    const TensorRef& index, const TensorRef& source,
                                    const c10::Scalar& number, const ElementWrite& write);

}  // namespace loom::ops
