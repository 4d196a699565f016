// SPDX-License-Identifier: BSD-3-Clause
// The unique operators: elements (or slices) are sorted, those that differ from the one before are
// the result. The host waits once, for their number.
#include "loom/backend/registration.h"
#include "loom/kernels/sort/row_order.h"
#include "loom/ops/aten/counted/positions.h"
#include "loom/ops/aten/counted/runs.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/_unique_ops.h>
#include <ATen/ops/any.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/unique_consecutive_ops.h>
#include <ATen/ops/unique_dim_consecutive_ops.h>
#include <ATen/ops/unique_dim_ops.h>
#include <torch/library.h>

#include <algorithm>

namespace loom::ops {
namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// What the kernels here compare and sort. ATen refuses, or runs, the rest.
bool is_supported(const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  return dtype == c10::kHalf || dtype == c10::kBFloat16 || dtype == c10::kFloat ||
         dtype == c10::kDouble ||
         (c10::isIntegralType(dtype, /*includeBool=*/true) && !c10::isBarebonesUnsignedType(dtype));
}

at::Tensor none(const at::Tensor& self) { return empty({0}, c10::kLong, self.device()); }

/// Runs of equal rows.
struct Runs {
  at::Tensor starts;  ///< of each run, its first row
  at::Tensor of;      ///< of each row, the number of its run

  /// `sorted`: equal rows lie together.
  Runs(const char* name, const at::Tensor& sorted) {
    const std::int64_t count = sorted.size(0);
    at::Tensor differs = empty({count}, c10::kBool, sorted.device());
    differs.narrow(0, 0, 1).fill_(true);
    if (count > 1) {
      const at::Tensor changes =
          at::ne(sorted.narrow(0, 1, count - 1), sorted.narrow(0, 0, count - 1));
      differs.narrow(0, 1, count - 1).copy_(at::any(changes, 1));
    }
    starts = vector_positions(name, differs);
    of = at::cumsum(differs, 0, c10::kLong).sub_(1);
  }

  [[nodiscard]] at::Tensor lengths(std::int64_t items) const {
    const at::Tensor end = at::full({1}, items, starts.options());
    return at::cat({starts.narrow(0, 1, starts.size(0) - 1), end}).sub_(starts);
  }
};

/// The inverse of a sorted order: for each item, as it was given, the number of its run.
at::Tensor in_given_order(const Runs& runs, const at::Tensor& order) {
  at::Tensor inverse = empty(order.sizes(), c10::kLong, order.device());
  return inverse.scatter_(0, order, runs.of);
}

Three unique_elements(const char* name, const at::Tensor& self, bool consecutive, bool inverse,
                      bool counts) {
  const at::Tensor flat = self.reshape({-1});
  const std::int64_t count = flat.numel();
  if (count == 0) {
    return {empty({0}, self.scalar_type(), self.device()),
            inverse ? empty(self.sizes(), c10::kLong, self.device()) : none(self), none(self)};
  }
  at::Tensor sorted = flat.contiguous(), order;
  if (!consecutive) std::tie(sorted, order) = at::sort(sorted, /*stable=*/true, 0, false);
  ElementRuns runs = element_runs(name, sorted, order, inverse, counts);
  return {runs.values, inverse ? runs.numbers.view(self.sizes()) : none(self),
          counts ? runs.lengths : none(self)};
}

// Runs on the worker.
void sort_rows(const at::Tensor& order, const at::Tensor& rows) {
  AT_DISPATCH_ALL_TYPES_AND3(
      c10::kBool, c10::kHalf, c10::kBFloat16, rows.scalar_type(), "unique_dim", [&] {
        kernels::sort::order_rows(stored(rows.const_data_ptr<scalar_t>()), rows.size(0),
                                  rows.size(1), order.mutable_data_ptr<std::int64_t>());
      });
}

Three unique_slices(const char* name, const at::Tensor& self, std::int64_t dim, bool consecutive) {
  const auto zeros = std::ranges::count(self.sizes(), 0);
  dim = c10::maybe_wrap_dim(dim, self.dim());
  if (self.size(dim) == 0) {
    TORCH_CHECK(zeros == 1,
                "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {empty(self.sizes(), self.scalar_type(), self.device()), none(self), none(self)};
  }
  TORCH_CHECK(
      zeros == 0,
      "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const at::Tensor moved = self.moveaxis(dim, 0).contiguous();
  const std::int64_t count = moved.size(0);
  const at::Tensor rows = moved.view({count, -1});
  at::Tensor sorted = rows, order;
  if (!consecutive) {
    order = empty({count}, c10::kLong, self.device());
    launch(name, Whole{}, sort_rows, out(order), rows);
    sorted = rows.index_select(0, order);
  }
  const Runs runs(name, sorted);
  at::DimVector sizes(moved.sizes());
  sizes[0] = runs.starts.size(0);
  return {sorted.index_select(0, runs.starts).view(sizes).moveaxis(0, dim),
          consecutive ? runs.of : in_given_order(runs, order), runs.lengths(count)};
}

template <class Op, class... Argument>
auto on_host(const Argument&... arguments) {
  return at::native::call_fallback_fn<&fallback, Op>::call(arguments...);
}

// ATen sorts whether it is asked to or not.
Three unique2(const at::Tensor& self, bool sorted, bool inverse, bool counts) {
  if (!is_supported(self)) return on_host<at::_ops::_unique2>(self, sorted, inverse, counts);
  return unique_elements("_unique2", self, /*consecutive=*/false, inverse, counts);
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool inverse) {
  if (!is_supported(self)) return on_host<at::_ops::_unique>(self, sorted, inverse);
  auto [elements, numbers, counts] =
      unique_elements("_unique", self, /*consecutive=*/false, inverse, /*counts=*/false);
  return {std::move(elements), std::move(numbers)};
}

Three unique_consecutive(const at::Tensor& self, bool inverse, bool counts,
                         std::optional<std::int64_t> dim) {
  if (!is_supported(self)) {
    return on_host<at::_ops::unique_consecutive>(self, inverse, counts, dim);
  }
  // As ATen: a single dimension is that of the elements.
  if (!dim) return unique_elements("unique_consecutive", self, true, inverse, counts);
  return unique_slices("unique_consecutive", self, *dim, /*consecutive=*/true);
}

Three unique_dim(const at::Tensor& self, std::int64_t dim, bool sorted, bool inverse, bool counts) {
  if (!is_supported(self)) {
    return on_host<at::_ops::unique_dim>(self, dim, sorted, inverse, counts);
  }
  return unique_slices("unique_dim", self, dim, /*consecutive=*/false);
}

Three unique_dim_consecutive(const at::Tensor& self, std::int64_t dim, bool inverse, bool counts) {
  if (!is_supported(self)) {
    return on_host<at::_ops::unique_dim_consecutive>(self, dim, inverse, counts);
  }
  return unique_slices("unique_dim_consecutive", self, dim, /*consecutive=*/true);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_unique", TORCH_FN(unique));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
}

}  // namespace loom::ops
