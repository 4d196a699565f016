// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of operators that work along one dimension (sorting, gathering, scattering), cut along
// another one; and of triangles of matrices. Thread: any.

#include "loom/base/ceil_div.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/cuts/reduce.h"
#include "loom/ops/launch/self_overlap.h"

#include <c10/core/WrapDimMinimal.h>

#include <algorithm>

namespace loom::ops {

/// kCost is that of one element.
template <int kCost>
struct AlongOthers {
  // glu: (self, dim)
  template <std::size_t kOutputs>
  static Along split(const std::array<at::Tensor, kOutputs>&, const at::Tensor& self,
                     std::int64_t dim) {
    return along(self, dim, kOutputs);
  }

  // linalg_cross: (self, other, dim)
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& self,
                     const at::Tensor& other, std::int64_t dim) {
    if (self.sizes() != other.sizes()) return whole();
    Along cut = along(outputs[0], dim, 1);
    cut.dims[2] = cut.dims[1];
    return cut;
  }

  // sort: (self, stable, dim, descending)
  static Along split(const std::array<at::Tensor, 2>&, const at::Tensor& self, std::optional<bool>,
                     std::int64_t dim, bool) {
    return along(self, dim, 2);
  }

  // topk: (self, k, dim, largest, sorted)
  static Along split(const std::array<at::Tensor, 2>&, const at::Tensor& self, std::int64_t,
                     std::int64_t dim, bool, bool) {
    return along(self, dim, 2);
  }

  // gather: (self, dim, index, ...); scatter: (self, dim, index, source or value, ...)
  template <class... More>
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& self,
                     std::int64_t dim, const at::Tensor& index, const More&... more) {
    if (index.dim() != self.dim()) return whole();
    Along cut = along(outputs[0], dim, 1);
    const std::int8_t other = cut.dims[0];
    if (other == SlicePlan::kWhole) return cut;
    // Where there are fewer indices than elements, the rest belongs to no block.
    if (index.size(other) != outputs[0].size(other)) return whole();
    cut.dims[1] = cut.dims[2] = other;
    set_source(cut, other, more...);
    return cut;
  }

 private:
  static Along whole() {
    Along cut;
    cut.dims.fill(SlicePlan::kWhole);
    return cut;
  }
  static Along along(const at::Tensor& self, std::int64_t dim, int outputs) {
    return cut_kept(self, reduced_dim(self, dim, /*keepdim=*/true), outputs, kCost);
  }

  static void set_source(Along& cut, std::int8_t dim, const at::Tensor& source, const auto&...) {
    cut.dims[3] = source.dim() == 0 ? SlicePlan::kWhole : dim;
  }
  static void set_source(Along&, std::int8_t, const auto&...) {}
};

/// renorm: (self, p, dim, maxnorm), whose slices of one dimension have nothing to do with each
/// other. kCost is that of one element.
template <int kCost>
struct AlongSlices {
  static Along split(const std::array<at::Tensor, 1>&, const at::Tensor& self, const at::Scalar&,
                     std::int64_t dim, const at::Scalar&) {
    const auto sliced = static_cast<std::int8_t>(c10::maybe_wrap_dim(dim, self.dim()));
    const auto slices = static_cast<double>(std::max<std::int64_t>(self.size(sliced), 1));
    return {.dims = {sliced, sliced}, .cost = kCost * static_cast<double>(self.numel()) / slices};
  }
};

/// index_add, index_copy, index_reduce: (self, dim, index, source, ...), where the index goes along
/// one dimension and any other is cut. kCost is that of one element.
template <int kCost>
struct AlongIndexed {
  template <class... More>
  static Along split(const std::array<at::Tensor, 1>& outputs, const at::Tensor& self,
                     std::int64_t dim, const at::Tensor&, const at::Tensor& source,
                     const More&...) {
    Along cut = cut_kept(outputs[0], reduced_dim(self, dim, /*keepdim=*/true), 1, kCost);
    const std::int8_t other = cut.dims[0];
    const bool fits = other != SlicePlan::kWhole && source.dim() == self.dim() &&
                      source.size(other) == self.size(other);
    if (fits) {
      cut.dims[2] = SlicePlan::kWhole;
      cut.dims[3] = other;
    } else {
      cut.dims.fill(SlicePlan::kWhole);
    }
    return cut;
  }
};

/// tril, triu: a matrix is cut along its rows, where the diagonal is another one; several along the
/// batch.
struct Triangle {
  static constexpr bool kProbesDtypes = true;
  static constexpr bool kMayCoincide = true;

  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t diagonal) {
    // Beyond the corners nothing changes, and there is nothing to add rows to.
    diagonal = std::clamp(diagonal, -self.size(-2), self.size(-1));
    if (self.dim() != 2) {
      const auto items = static_cast<double>(std::max<std::int64_t>(self.size(0), 1));
      const Along split{.cost = static_cast<double>(self.numel()) / items};
      const auto batch = [](const at::Tensor& result, const at::Tensor& from, std::int64_t first) {
        const KeptForm form(result);
        // In place the kernel copies what it cannot write as it lies, and knows that by the tensor.
        const bool in_place =
            from.const_data_ptr() == result.const_data_ptr() && from.strides() == result.strides();
        kCpu(in_place ? result : from, first, const_cast<at::Tensor&>(result));
        form.restore();
      };
      ops::launch(name, split, batch, out(outputs[0]), self, diagonal);
      return;
    }
    const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                           std::int64_t first) {
      const std::int64_t rows = to.sizes()[0];
      const std::int64_t most =
          may_overlap_itself(to) ? rows : block_length(rows, static_cast<double>(to.sizes()[1]));
      const std::int64_t block = std::max<std::int64_t>(most, 1);
      grid.run(ceil_div(rows, block), [&](std::int64_t index) {
        const std::int64_t begin = index * block, count = std::min(block, rows - begin);
        at::Tensor result = to.alias_slice(0, begin, count);
        const KeptForm form(result);
        kCpu(from.alias_slice(0, begin, count), first + begin, result);
        form.restore();
      });
    };
    ops::launch(name, Custom{}, kernel, out(outputs[0]), self, diagonal);
  }
};

}  // namespace loom::ops
