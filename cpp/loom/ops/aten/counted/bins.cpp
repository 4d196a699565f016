// SPDX-License-Identifier: BSD-3-Clause
// bincount and repeat_interleave: the host waits for the number of results only.
#include "loom/backend/stream.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/min.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>

namespace loom::ops {
namespace {

template <class Op, class... Argument>
auto on_host(const Argument&... arguments) {
  return at::native::call_fallback_fn<&fallback, Op>::call(arguments...);
}

/// Two numbers on the device, for which the host waits. Throws: while the stream is captured.
std::array<std::int64_t, 2> wait_for(const char* name, const at::Tensor& first,
                                     const at::Tensor& second) {
  current_queue(first.device().index())
      .check_not_captured(name,
                          "the host has to know the size of its result, which depends on data");
  const at::Tensor both = at::stack({first.to(c10::kLong), second.to(c10::kLong)}).cpu();
  const auto* const numbers = both.const_data_ptr<std::int64_t>();
  return {numbers[0], numbers[1]};
}

// Runs on the worker. As ATen, in the order of the elements.
void count_bins(const at::Tensor& bins, const at::Tensor& self, const at::Tensor& weights) {
  AT_DISPATCH_INTEGRAL_TYPES(self.scalar_type(), "bincount_cpu", [&] {
    const scalar_t* const which = self.const_data_ptr<scalar_t>();
    const std::int64_t count = self.numel();
    const auto add = [&](auto* to, auto weight) {
      for (std::int64_t i = 0; i < count; ++i) to[static_cast<std::int64_t>(which[i])] += weight(i);
    };
    if (!weights.defined()) {
      add(bins.mutable_data_ptr<std::int64_t>(), [](std::int64_t) { return std::int64_t{1}; });
    } else if (weights.scalar_type() == c10::kFloat) {
      const auto* const data = weights.const_data_ptr<float>();
      add(bins.mutable_data_ptr<float>(), [data](std::int64_t i) { return data[i]; });
    } else {
      const auto* const data = weights.const_data_ptr<double>();
      add(bins.mutable_data_ptr<double>(), [data](std::int64_t i) { return data[i]; });
    }
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
  const auto [low, high] = at::aminmax(self);
  const auto [least, most] = wait_for("aten::bincount", low, high);
  TORCH_CHECK(least >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(most < std::numeric_limits<std::int64_t>::max(),
              "maximum value of input overflowed, it should be < ",
              std::numeric_limits<std::int64_t>::max(), " but got ", most);
  if (weights.defined() && weights.scalar_type() != c10::kFloat) weights = weights.to(c10::kDouble);
  const auto dtype = weights.defined() ? weights.scalar_type() : c10::kLong;
  const at::Tensor bins = at::zeros({std::max(most + 1, minlength)}, self.options().dtype(dtype));
  const auto kernel = [](const at::Tensor& to, const at::Tensor& which, const at::Tensor& weight) {
    to.zero_();
    count_bins(to, which, weight);
  };
  launch("bincount", Whole{}, kernel, out(bins), self.contiguous(),
         weights.defined() ? weights.contiguous() : weights);
  return bins;
}

// Runs on the worker.
void fill_repeats(const at::Tensor& result, const at::Tensor& repeats, const at::Tensor& ends) {
  const std::int64_t count = repeats.numel();
  const auto* const end = ends.const_data_ptr<std::int64_t>();
  TORCH_CHECK(count == 0 || end[count - 1] == result.numel(),
              "allocated size does not match required size");
  AT_DISPATCH_INDEX_TYPES(repeats.scalar_type(), "repeat_interleave_cpu", [&] {
    auto* const to = result.mutable_data_ptr<index_t>();
    const auto* const times = repeats.const_data_ptr<index_t>();
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      TORCH_CHECK(times[i] >= 0 && times[i] <= result.numel() - at, "repeats can not be negative");
      std::fill_n(to + at, times[i], static_cast<index_t>(i));
      at += times[i];
    }
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
    const auto [least, sum] =
        wait_for("aten::repeat_interleave", at::min(repeats), ends.select(0, repeats.numel() - 1));
    TORCH_CHECK(least >= 0, "repeats can not be negative");
    total = sum;
  }
  at::Tensor result = empty({total}, dtype, repeats.device());
  launch("repeat_interleave", Whole{}, fill_repeats, out(result), repeats.contiguous(), ends);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

}  // namespace loom::ops
