// SPDX-License-Identifier: BSD-3-Clause
// bincount and repeat_interleave: the host waits for the number of results only.
#include "loom/backend/registration.h"
#include "loom/kernels/index/counting.h"
#include "loom/ops/aten/counted/blocks.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"

#include <ATen/Dispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <vector>

namespace loom::ops {
namespace {

using namespace kernels::index;

template <class Op, class... Argument>
auto on_host(const Argument&... arguments) {
  return at::native::call_fallback_fn<&fallback, Op>::call(arguments...);
}

/// Two numbers on the device, which the host waits for. Throws: while the stream is captured.
std::array<std::int64_t, 2> wait_for(const char* name, const at::Tensor& both) {
  check_may_wait(name, both.device());
  const at::Tensor on_host = both.cpu();
  const auto* const numbers = on_host.const_data_ptr<std::int64_t>();
  return {numbers[0], numbers[1]};
}

// Runs on the worker: the least and the largest element.
void find_range(Grid& grid, const TensorRef& to, const TensorRef& self) {
  const std::int64_t count = self.numel();
  auto* const range = elements<std::int64_t>(to);
  AT_DISPATCH_INTEGRAL_TYPES(self.dtype(), "bincount_cpu", [&] {
    const auto* const from = elements<const scalar_t>(self);
    std::vector<LeastAndMost<scalar_t>> found(static_cast<std::size_t>(counted_blocks(count)));
    in_blocks(grid, count, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
      found[static_cast<std::size_t>(block)] = least_and_most(from, begin, end);
    });
    range[0] = std::ranges::min_element(found, {}, &LeastAndMost<scalar_t>::least)->least;
    range[1] = std::ranges::max_element(found, {}, &LeastAndMost<scalar_t>::most)->most;
  });
}

// Runs on the worker. Each block counts by itself where that is little work beside.
void count_elements(Grid& grid, const TensorRef& to, const TensorRef& self) {
  const std::int64_t count = self.numel(), size = to.numel();
  auto* const bins = elements<std::int64_t>(to);
  AT_DISPATCH_INTEGRAL_TYPES(self.dtype(), "bincount_cpu", [&] {
    const auto* const which = elements<const scalar_t>(self);
    std::fill_n(bins, size, 0);
    if (count <= kCountedBlock || 8 * size > kCountedBlock) {
      return count_into(bins, which, 0, count);
    }
    std::vector<std::vector<std::int64_t>> counts(static_cast<std::size_t>(counted_blocks(count)));
    in_blocks(grid, count, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
      auto& own = counts[static_cast<std::size_t>(block)];
      own.assign(static_cast<std::size_t>(size), 0);
      count_into(own.data(), which, begin, end);
    });
    for (const auto& own : counts) std::transform(own.begin(), own.end(), bins, bins, std::plus());
  });
}

// Runs on the worker. As ATen, in the order of the elements.
void add_weights(const at::Tensor& bins, const at::Tensor& self, const at::Tensor& weights) {
  AT_DISPATCH_INTEGRAL_TYPES(self.scalar_type(), "bincount_cpu", [&] {
    const auto add = [&]<class Weight>(Weight) {
      weigh_into(bins.mutable_data_ptr<Weight>(), self.const_data_ptr<scalar_t>(),
                 weights.const_data_ptr<Weight>(), self.numel());
    };
    weights.scalar_type() == c10::kFloat ? add(float{}) : add(double{});
  });
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights_opt,
                    std::int64_t minlength) {
  at::Tensor weights = weights_opt ? *weights_opt : at::Tensor();
  // What ATen refuses, it refuses itself.
  const bool plain = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
                     !c10::isBarebonesUnsignedType(self.scalar_type()) && self.dim() == 1 &&
                     minlength >= 0 && self.is_privateuseone() &&
                     (self.numel() == 0 || !weights.defined() ||
                      (weights.device() == self.device() && weights.sizes() == self.sizes()));
  if (!plain) return on_host<at::_ops::bincount>(self, weights_opt, minlength);
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(c10::kLong));
  const at::Tensor dense = self.contiguous();
  const at::Tensor range = empty({2}, c10::kLong, self.device());
  launch("bincount", Custom{}, find_range, out(range), dense);
  const auto [least, most] = wait_for("aten::bincount", range);
  TORCH_CHECK(least >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(most < std::numeric_limits<std::int64_t>::max(),
              "maximum value of input overflowed, it should be < ",
              std::numeric_limits<std::int64_t>::max(), " but got ", most);
  if (weights.defined() && weights.scalar_type() != c10::kFloat) weights = weights.to(c10::kDouble);
  const auto dtype = weights.defined() ? weights.scalar_type() : c10::kLong;
  const at::Tensor bins = empty({std::max(most + 1, minlength)}, dtype, self.device());
  if (!weights.defined()) {
    launch("bincount", Custom{}, count_elements, out(bins), dense);
    return bins;
  }
  const auto kernel = [](const at::Tensor& to, const at::Tensor& which, const at::Tensor& weight) {
    to.zero_();
    add_weights(to, which, weight);
  };
  launch("bincount", Whole{}, kernel, out(bins), dense, weights.contiguous());
  return bins;
}

// Runs on the worker: the least number of repeats, and the end of the last ones.
void find_total(Grid& grid, const TensorRef& to, const TensorRef& repeats, const TensorRef& ends) {
  find_range(grid, to, repeats);
  elements<std::int64_t>(to)[1] = elements<const std::int64_t>(ends)[ends.numel() - 1];
}

// Runs on the worker.
void fill_repeats(Grid& grid, const TensorRef& result, const TensorRef& repeats,
                  const TensorRef& ends) {
  const std::int64_t count = repeats.numel(), total = result.numel();
  const auto* const end = elements<const std::int64_t>(ends);
  TORCH_CHECK(end[count - 1] == total, "allocated size does not match required size");
  AT_DISPATCH_INDEX_TYPES(repeats.dtype(), "repeat_interleave_cpu", [&] {
    in_blocks(grid, count, [&](std::int64_t, std::int64_t first, std::int64_t last) {
      TORCH_CHECK(repeat_numbers(elements<index_t>(result), total, elements<const index_t>(repeats),
                                 end, first, last),
                  "repeats can not be negative");
    });
  });
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<std::int64_t> output_size) {
  const auto dtype = repeats.scalar_type();
  if (repeats.dim() != 1 || (dtype != c10::kLong && dtype != c10::kInt)) {
    return on_host<at::_ops::repeat_interleave_Tensor>(repeats, output_size);
  }
  if (repeats.numel() == 0) return empty({0}, dtype, repeats.device());
  const at::Tensor ends = at::cumsum(repeats, 0, c10::kLong);
  std::int64_t total;
  if (output_size) {
    total = *output_size;
  } else {
    const at::Tensor both = empty({2}, c10::kLong, repeats.device());
    launch("repeat_interleave", Custom{}, find_total, out(both), repeats.contiguous(), ends);
    const auto [least, sum] = wait_for("aten::repeat_interleave", both);
    TORCH_CHECK(least >= 0, "repeats can not be negative");
    total = sum;
  }
  at::Tensor result = empty({total}, dtype, repeats.device());
  launch("repeat_interleave", Custom{}, fill_repeats, out(result), repeats.contiguous(), ends);
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

}  // namespace loom::ops
