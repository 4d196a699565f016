// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of factorisations, and of what ATen computes by means of them: matrices that are large
// enough for all cores are factorised by the stubs of recipes/factorizations.cpp. ATen's kernels
// of these operators are the same for all devices, so they run on the caller with the device's
// tensors, and queue their steps. Thread: any.

#include "loom/ops/aten/policy/checked.h"
#include "loom/ops/aten/policy/matrices.h"
#include "loom/ops/aten/structured.h"
#include "loom/ops/recipes/factorizations.h"

#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_solve_ex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/lu_unpack.h>

#include <tuple>
#include <type_traits>

namespace loom::ops {

/// The steps are those of the CPU kernel.
struct CpuSteps {
  template <auto kCpu, std::size_t kOutputs, class... Argument>
  static void run(std::array<at::Tensor, kOutputs> outputs, const Argument&... arguments) {
    std::apply(
        [&](auto&... output) { detail::outputs_first<kOutputs>(kCpu)(output..., arguments...); },
        outputs);
  }
};

/// Those of linalg_inv_ex: the CPU kernel solves in the place of the right-hand side.
struct InverseSteps {
  template <auto>
  static void run(std::array<at::Tensor, 2> outputs, const at::Tensor& self, bool check_errors) {
    auto& [result, info] = outputs;
    const at::Tensor identity = at::eye(self.size(-1), self.options()).expand_as(self);
    at::Tensor factors = at::empty({0}, self.options());
    at::Tensor pivots = at::empty({0}, self.options().dtype(at::kInt));
    at::_linalg_solve_ex_out(result, factors, pivots, info, self, identity, /*left=*/true,
                             /*check_errors=*/false);
    if (check_errors) at::_linalg_check_errors(info, "linalg.inv_ex", self.dim() == 2);
  }
};

/// Those of linalg_lu: the CPU kernel makes its pivots on the host.
struct LuSteps {
  static constexpr bool kTakesAnyOutput = true;
  template <auto>
  static void run(std::array<at::Tensor, 3> outputs, const at::Tensor& self, bool pivot) {
    auto& [permutation, lower, upper] = outputs;
    const auto [factors, pivots, info] = at::linalg_lu_factor_ex(self, pivot);
    at::lu_unpack_out(permutation, lower, upper, factors, pivots, /*unpack_data=*/true,
                      /*unpack_pivots=*/pivot);
  }
};

/// `Small` is the policy of matrices that are not large. If kHasSide, the first bool says whether
/// the result lies column after column, as all others do.
template <class Small, class Steps = CpuSteps, bool kHasSide = false>
class LargeMatrices {
 public:
  template <auto kCpu, std::size_t kOutputs, class... Argument>
  static void launch(const char* name, const std::array<at::Tensor, kOutputs>& outputs,
                     const Argument&... arguments) {
    bool by_columns = true;
    if constexpr (kHasSide) by_columns = first_flag(arguments...);
    if (are_large(arguments...) && conform(outputs, by_columns)) {
      Steps::template run<kCpu>(outputs, arguments...);
    } else if constexpr (requires { Small::split(outputs, arguments...); }) {
      launch_cpu<kCpu>(name, Small::split(outputs, arguments...), outputs, arguments...);
    } else {
      Small::template launch<kCpu>(name, outputs, arguments...);
    }
  }

 private:
  template <class First, class... Others>
  static bool first_flag(const First& first, const Others&... others) {
    if constexpr (std::is_same_v<First, bool>) {
      return first;
    } else {
      return first_flag(others...);
    }
  }

  template <class... Argument>
  static bool are_large(const at::Tensor& first, const Argument&... others) {
    return is_large_matrix(first) && (fits(first, others) && ...);
  }
  /// Stubs take no matrices that are used for several right-hand sides of a batch.
  static bool fits(const at::Tensor& first, const at::Tensor& other) {
    return other.dim() < first.dim() ||
           other.sizes().slice(0, other.dim() - 2) == first.sizes().slice(0, first.dim() - 2);
  }
  template <class T>
  static bool fits(const at::Tensor&, const T&) {
    return true;
  }

  /// Stubs take results as ATen makes them: dense, matrix after matrix, and column after column.
  /// The CPU kernel would make others on the host.
  template <std::size_t kOutputs>
  static bool conform(const std::array<at::Tensor, kOutputs>& outputs, bool by_columns) {
    if constexpr (requires { Steps::kTakesAnyOutput; }) return true;
    for (std::size_t i = 0; i < kOutputs; ++i) {
      const at::Tensor& output = outputs[i];
      const bool is_matrix = output.dim() > 1 && output.is_floating_point();
      const bool columns = is_matrix && (i > 0 || by_columns);
      if (output.strides() !=
          at::native::batched_matrix_contiguous_strides(output.sizes(), columns)) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace loom::ops
