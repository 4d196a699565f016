// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of operators that read or write through an index: by loom's kernels where tensors are
// dense and their dtype is known, otherwise by ATen's in blocks of the other dimensions. An index
// out of range is reported by ATen's kernel, in its words. Thread: any.

#include "loom/ops/aten/policy/along_others.h"
#include "loom/ops/launch/number_check.h"
#include "loom/ops/recipes/indexed/elements.h"
#include "loom/ops/recipes/indexed/read_rows.h"
#include "loom/ops/recipes/indexed/write_rows.h"

#include <c10/core/WrapDimMinimal.h>

#include <optional>
#include <string_view>
#include <type_traits>

namespace loom::ops {

/// What a name of a reduction means.
[[nodiscard]] inline std::optional<Combine> combine_of(std::string_view name) {
  if (name == "add" || name == "sum") return Combine::kAdd;
  if (name == "multiply" || name == "prod") return Combine::kProduct;
  if (name == "mean") return Combine::kMean;
  if (name == "amin") return Combine::kMinimum;
  if (name == "amax") return Combine::kMaximum;
  return std::nullopt;
}

/// index_copy, index_add, index_reduce: (self, dim, index, source, ...). kCost is that of one
/// element in ATen's kernel.
template <int kCost>
struct WritesRows {
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                     const at::Tensor& source, const More&... more) {
    (check_number(self.scalar_type(), more), ...);
    auto write = write_of(more...);
    if (write) write->dim = c10::maybe_wrap_dim(dim, self.dim());
    if (!write || !can_write_rows(*write, outputs[0], self, index, source)) {
      return launch_cpu<kCpu>(
          name, AlongIndexed<kCost>::split(outputs, self, dim, index, source, more...), outputs,
          self, dim, index, source, more...);
    }
    if constexpr (sizeof...(More) == 2) {  // as the CPU kernel, which is not asked
      TORCH_WARN_ONCE("index_reduce() is in beta and the API may change at any time.");
    }
    const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                           const TensorRef& places, const TensorRef& with, const RowWrite& how,
                           std::int64_t along, const auto&... others) {
      if (write_rows(grid, to, from, places, with, how)) return;
      at::Tensor result = to.alias();
      kCpu(from.alias(), along, places.alias(), with.alias(), others..., result);
    };
    ops::launch(name, Custom{}, kernel, out(outputs[0]), self, index, source, *write, dim, more...);
  }

 private:
  static void check_number(c10::ScalarType dtype, const at::Scalar& number) {
    check_filling(dtype, number);
  }
  template <class T>
  static void check_number(c10::ScalarType, const T&) {}

  static std::optional<RowWrite> write_of() { return RowWrite{.how = Combine::kCopy}; }
  static std::optional<RowWrite> write_of(const at::Scalar& alpha) {
    return RowWrite{.how = Combine::kAdd, .factor = alpha};
  }
  static std::optional<RowWrite> write_of(std::string_view name, bool counts_self) {
    const auto how = combine_of(name);
    if (!how) return std::nullopt;
    return RowWrite{.how = *how, .counts_self = counts_self};
  }
};

/// gather: (self, dim, index, ...). An index that is expanded over what lies behind its dimension
/// names whole items.
template <int kCost>
struct Gathers {
  template <auto kCpu, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                     const More&... more) {
    const std::int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim());
    const at::Tensor items = item_index(outputs[0], self, wrapped, index);
    if (items.defined()) {
      const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                             const TensorRef& places, std::int64_t along, const auto&... others) {
        Lines lines = lines_of(from.alias(), along, to.sizes()[along]);
        lines.inner *= static_cast<std::int64_t>(from.itemsize());
        if (read_items(grid, to, from, places, lines)) return;
        at::Tensor result = to.alias();
        kCpu(from.alias(), along, expand_items(places.alias(), result, along), others..., result);
      };
      return ops::launch(name, Custom{}, kernel, out(outputs[0]), self, items, wrapped, more...);
    }
    if (!can_go_along(outputs[0], self, wrapped, index)) {
      return launch_cpu<kCpu>(name, AlongOthers<kCost>::split(outputs, self, dim, index, more...),
                              outputs, self, dim, index, more...);
    }
    const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                           const TensorRef& places, std::int64_t along, const auto&... others) {
      if (gather_elements(grid, to, from, places, along)) return;
      at::Tensor result = to.alias();
      kCpu(from.alias(), along, places.alias(), others..., result);
    };
    ops::launch(name, Custom{}, kernel, out(outputs[0]), self, index, wrapped, more...);
  }
};

/// scatter, scatter_add, scatter_reduce: (self, dim, index, source or number, ...). kHow is what
/// happens unless a name says it. An index that is expanded over all other dimensions names whole
/// items, as that of index_add does.
template <Combine kHow, int kCost>
struct Scatters {
  template <auto kCpu, class Source, class... More>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                     const Source& source, const More&... more) {
    if constexpr (std::is_same_v<Source, at::Scalar>) check_filling(self.scalar_type(), source);
    auto write = write_of(more...);
    if (write) write->dim = c10::maybe_wrap_dim(dim, self.dim());
    if constexpr (std::is_same_v<Source, at::Tensor>) {
      if (write && launch_items<kCpu>(name, outputs[0], self, *write, index, source, more...)) {
        return;
      }
    }
    if (!write || !can_go_along(outputs[0], self, write->dim, index) ||
        !takes(*write, self, index, source)) {
      return launch_cpu<kCpu>(name,
                              AlongOthers<kCost>::split(outputs, self, dim, index, source, more...),
                              outputs, self, dim, index, source, more...);
    }
    ops::launch(name, Custom{}, kernel<kCpu>(source), out(outputs[0]), self, index, source, *write,
                more...);
  }

 private:
  static std::optional<ElementWrite> write_of() { return ElementWrite{.how = kHow}; }
  static std::optional<ElementWrite> write_of(std::string_view name, bool counts_self = true) {
    const auto how = combine_of(name);
    if (!how) return std::nullopt;
    return ElementWrite{.how = *how, .counts_self = counts_self};
  }

  template <auto kCpu, class... More>
  static bool launch_items(const char* name, const at::Tensor& result, const at::Tensor& self,
                           const ElementWrite& write, const at::Tensor& index,
                           const at::Tensor& source, const More&... more) {
    const at::Tensor items = item_index(result, self, write.dim, index);
    const RowWrite rows{.how = write.how, .dim = write.dim, .counts_self = write.counts_self};
    if (!items.defined() || !can_write_rows(rows, result, self, items, source)) return false;
    const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                           const TensorRef& places, const TensorRef& with, const RowWrite& how,
                           const auto&... others) {
      if (write_rows(grid, to, from, places, with, how)) return;
      at::Tensor made = to.alias();
      const at::Tensor added = with.alias();
      kCpu(from.alias(), how.dim, expand_items(places.alias(), added, how.dim), added, others...,
           made);
    };
    ops::launch(name, Custom{}, kernel, out(result), self, items, source, rows, more...);
    return true;
  }

  static bool takes(const ElementWrite& write, const at::Tensor& self, const at::Tensor& index,
                    const at::Tensor& source) {
    return can_scatter(write.how, self, write.dim, index, source);
  }
  static bool takes(const ElementWrite& write, const at::Tensor&, const at::Tensor&,
                    const at::Scalar&) {
    return write.how == Combine::kCopy;
  }

  template <auto kCpu>
  static auto kernel(const at::Tensor&) {
    return [](Grid& grid, const TensorRef& to, const TensorRef& from, const TensorRef& places,
              const TensorRef& with, const ElementWrite& write, const auto&... others) {
      if (scatter_elements(grid, to, from, places, with, 0, write)) return;
      at::Tensor result = to.alias();
      kCpu(from.alias(), write.dim, places.alias(), with.alias(), others..., result);
    };
  }
  template <auto kCpu>
  static auto kernel(const at::Scalar&) {
    return [](Grid& grid, const TensorRef& to, const TensorRef& from, const TensorRef& places,
              const at::Scalar& with, const ElementWrite& write, const auto&... others) {
      if (scatter_elements(grid, to, from, places, TensorRef(), with, write)) return;
      at::Tensor result = to.alias();
      kCpu(from.alias(), write.dim, places.alias(), with, others..., result);
    };
  }
};

}  // namespace loom::ops
