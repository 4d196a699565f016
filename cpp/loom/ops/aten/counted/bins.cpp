// SPDX-License-Identifier: BSD-3-Clause
// bincount and repeat_interleave: the host waits for the number of results only.
#include "loom/backend/stream.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/repeat_interleave_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace loom::ops {
namespace {

template <class Op, class... Argument>
auto on_host(const Argument&... arguments) {
  return at::native::call_fallback_fn<&fallback, Op>::call(arguments...);
}

/// Two numbers on the device, which the host waits for. Throws: while the stream is captured.
std::array<std::int64_t, 2> wait_for(const char* name, const at::Tensor& both) {
  current_queue(both.device().index())
      .check_not_captured(name,
                          "the host has to know the size of its result, which depends on data");
  const at::Tensor on_host = both.cpu();
  const auto* const numbers = on_host.const_data_ptr<std::int64_t>();
  return {numbers[0], numbers[1]};
}

constexpr std::int64_t kPart = 1 << 15;

/// Elements [begin, end) of each part of `count`, on all cores.
template <class Body>
void in_parts(Grid& grid, std::int64_t count, Body&& body) {
  grid.run_by_any(ceil_div(count, kPart), [&](std::int64_t part) {
    body(part, part * kPart, std::min(count, (part + 1) * kPart));
  });
}

// Runs on the worker: the least and the largest element.
void find_range(Grid& grid, const TensorRef& to, const TensorRef& self) {
  const std::int64_t count = self.numel();
  auto* const range = reinterpret_cast<std::int64_t*>(to.data());
  AT_DISPATCH_INTEGRAL_TYPES(self.dtype(), "bincount_cpu", [&] {
    const auto* const elements = reinterpret_cast<const scalar_t*>(self.data());
    std::vector<std::array<scalar_t, 2>> found(static_cast<std::size_t>(ceil_div(count, kPart)));
    in_parts(grid, count, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      scalar_t least = elements[begin], most = elements[begin];
      for (std::int64_t i = begin; i < end; ++i) {
        least = std::min(least, elements[i]);
        most = std::max(most, elements[i]);
      }
      found[static_cast<std::size_t>(part)] = {least, most};
    });
    for (const auto& part : found) {
      found[0] = {std::min(found[0][0], part[0]), std::max(found[0][1], part[1])};
    }
    range[0] = found[0][0];
    range[1] = found[0][1];
  });
}

// Runs on the worker. Each part counts by itself where that is little work beside.
void count_elements(Grid& grid, const TensorRef& to, const TensorRef& self) {
  const std::int64_t count = self.numel(), size = to.numel();
  auto* const bins = reinterpret_cast<std::int64_t*>(to.data());
  AT_DISPATCH_INTEGRAL_TYPES(self.dtype(), "bincount_cpu", [&] {
    const auto* const which = reinterpret_cast<const scalar_t*>(self.data());
    const auto add = [&](std::int64_t* counts, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++counts[static_cast<std::int64_t>(which[i])];
    };
    std::fill_n(bins, size, 0);
    if (count <= kPart || 8 * size > kPart) return add(bins, 0, count);
    std::vector<std::vector<std::int64_t>> counts(static_cast<std::size_t>(ceil_div(count, kPart)));
    in_parts(grid, count, [&](std::int64_t part, std::int64_t begin, std::int64_t end) {
      auto& own = counts[static_cast<std::size_t>(part)];
      own.assign(static_cast<std::size_t>(size), 0);
      add(own.data(), begin, end);
    });
    for (const auto& own : counts) {
      for (std::int64_t b = 0; b < size; ++b) bins[b] += own[static_cast<std::size_t>(b)];
    }
  });
}

// Runs on the worker. As ATen, in the order of the elements.
void add_weights(const at::Tensor& bins, const at::Tensor& self, const at::Tensor& weights) {
  AT_DISPATCH_INTEGRAL_TYPES(self.scalar_type(), "bincount_cpu", [&] {
    const scalar_t* const which = self.const_data_ptr<scalar_t>();
    const std::int64_t count = self.numel();
    const auto add = [&](auto* to, auto weight) {
      for (std::int64_t i = 0; i < count; ++i) to[static_cast<std::int64_t>(which[i])] += weight(i);
    };
    if (weights.scalar_type() == c10::kFloat) {
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
  const at::Tensor elements = self.contiguous();
  const at::Tensor range = empty({2}, c10::kLong, self.device());
  launch("bincount", Custom{}, find_range, out(range), elements);
  const auto [least, most] = wait_for("aten::bincount", range);
  TORCH_CHECK(least >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(most < std::numeric_limits<std::int64_t>::max(),
              "maximum value of input overflowed, it should be < ",
              std::numeric_limits<std::int64_t>::max(), " but got ", most);
  if (weights.defined() && weights.scalar_type() != c10::kFloat) weights = weights.to(c10::kDouble);
  const auto dtype = weights.defined() ? weights.scalar_type() : c10::kLong;
  const at::Tensor bins = empty({std::max(most + 1, minlength)}, dtype, self.device());
  if (!weights.defined()) {
    launch("bincount", Custom{}, count_elements, out(bins), elements);
    return bins;
  }
  const auto kernel = [](const at::Tensor& to, const at::Tensor& which, const at::Tensor& weight) {
    to.zero_();
    add_weights(to, which, weight);
  };
  launch("bincount", Whole{}, kernel, out(bins), elements, weights.contiguous());
  return bins;
}

// Runs on the worker: the least number of repeats, and the end of the last ones.
void find_total(Grid& grid, const TensorRef& to, const TensorRef& repeats, const TensorRef& ends) {
  find_range(grid, to, repeats);
  reinterpret_cast<std::int64_t*>(to.data())[1] =
      reinterpret_cast<const std::int64_t*>(ends.data())[ends.numel() - 1];
}

// Runs on the worker.
void fill_repeats(Grid& grid, const TensorRef& result, const TensorRef& repeats,
                  const TensorRef& ends) {
  const std::int64_t count = repeats.numel(), total = result.numel();
  const auto* const end = reinterpret_cast<const std::int64_t*>(ends.data());
  TORCH_CHECK(end[count - 1] == total, "allocated size does not match required size");
  AT_DISPATCH_INDEX_TYPES(repeats.dtype(), "repeat_interleave_cpu", [&] {
    auto* const to = reinterpret_cast<index_t*>(result.data());
    const auto* const times = reinterpret_cast<const index_t*>(repeats.data());
    in_parts(grid, count, [&](std::int64_t, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        TORCH_CHECK(times[i] >= 0 && times[i] <= end[i] && end[i] <= total,
                    "repeats can not be negative");
        std::fill_n(to + (end[i] - times[i]), times[i], static_cast<index_t>(i));
      }
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

}  // namespace loom::ops
