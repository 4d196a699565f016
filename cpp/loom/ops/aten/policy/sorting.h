// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policies of operators that put elements in order or look for them. Thread: any.

#include "loom/ops/aten/policy/along_others.h"
#include "loom/ops/recipes/look_up.h"
#include "loom/ops/recipes/sort.h"

#include <algorithm>

namespace loom::ops {

/// sort: (self, stable, dim, descending). Long rows are sorted by digits, stably in any case;
/// others are cut along another dimension. kCost is that of one element.
template <int kCost>
struct Sort {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, std::optional<bool> stable, std::int64_t dim,
                     bool descending) {
    // Where many elements are equal and their order is left open, places are those of cpu.
    const bool has_many_equals =
        self.scalar_type() == at::kBool || c10::isReducedFloatingType(self.scalar_type());
    const bool as_cpu = has_many_equals && !stable.value_or(false);
    if (!as_cpu && launch_sort(name, outputs[0], outputs[1], self, dim, descending)) return;
    launch_cpu<kCpu>(name, AlongOthers<kCost>::split(outputs, self, stable, dim, descending),
                     outputs, self, stable, dim, descending);
  }
};

/// topk: (self, k, dim, largest, sorted). Of a single long row each part has its own first, among
/// which the first ones of all are. kCost is that of one element.
template <int kCost>
struct TopK {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 2>& outputs,
                     const at::Tensor& self, std::int64_t k, std::int64_t dim, bool largest,
                     bool sorted) {
    if (launch_topk(name, outputs[0], outputs[1], self, k, largest, sorted)) return;
    launch_cpu<kCpu>(name, AlongOthers<kCost>::split(outputs, self, k, dim, largest, sorted),
                     outputs, self, k, dim, largest, sorted);
  }
};

/// isin: (elements, test_elements, assume_unique, invert). Where ATen's kernel has to look, each
/// part looks for its elements in all of the others, which it sorts: parts are longer than they.
/// kCost is that of one element.
template <int kCost>
struct LookUp {
  template <auto kCpu>
  static void launch(const char* name, const std::array<at::Tensor, 1>& outputs,
                     const at::Tensor& elements, const at::Tensor& among, bool unique,
                     bool invert) {
    if (launch_look_up(name, outputs[0], elements, among, invert)) return;
    launch_cpu<kCpu>(name, cut(elements, among), outputs, elements, among, unique, invert);
  }

 private:
  static Along cut(const at::Tensor& elements, const at::Tensor& among) {
    Along cut;
    cut.dims.fill(SlicePlan::kWhole);
    if (elements.dim() == 0 || elements.numel() == 0) return cut;
    const auto sizes = elements.sizes();
    const auto longest =
        static_cast<std::int8_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
    const std::int64_t items = sizes[longest], each = elements.numel() / items;
    cut.dims[0] = cut.dims[1] = longest;
    cut.cost = kCost * static_cast<double>(each);
    cut.block = std::max(block_length(items, cut.cost), ceil_div(4 * among.numel(), each));
    return cut;
  }
};

}  // namespace loom::ops
