// SPDX-License-Identifier: BSD-3-Clause
// Histograms of many elements: parts are counted by ATen's kernel, each by itself, and added up in
// their order. What it refuses, and what is small, is left to it.
#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ops/aminmax_cpu_dispatch.h>
#include <ATen/ops/histc_native.h>
#include <ATen/ops/histogram_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace loom::ops {
namespace {

// Elements of a part: some tens of microseconds; a result is small beside them.
constexpr std::int64_t kPart = 1 << 15, kMaxParts = 64;

std::int64_t parts_of(std::int64_t elements) {
  return std::min(kMaxParts, ceil_div(elements, kPart));
}

bool is_cut(const at::Tensor& self, std::int64_t bins) {
  const auto dtype = self.scalar_type();
  return (dtype == c10::kFloat || dtype == c10::kDouble) && self.layout() == c10::kStrided &&
         !self.is_nested() && !self.is_neg() && !self._is_zerotensor() &&
         self.numel() >= 2 * kPart && bins > 0 && bins <= kPart / 4;
}

/// Lower and upper end, as ATen keeps them.
using Ends = std::array<double, 2>;

/// A dense tensor in parts.
class Parts {
 public:
  Parts(Grid& grid, const TensorRef& all) : grid_(grid), all_(all), count_(parts_of(all.numel())) {}

  /// Calls body(number, of a part) for each.
  template <class Body>
  void each(Body&& body) const {
    grid_.run(count_, body);
  }
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] at::Tensor at(const TensorRef& tensor, std::int64_t part) const {
    const std::int64_t begin = part * all_.numel() / count_;
    return tensor.alias_flat(begin, (part + 1) * all_.numel() / count_ - begin);
  }
  [[nodiscard]] at::Tensor at(std::int64_t part) const { return at(all_, part); }

  [[nodiscard]] Ends extrema() const {
    std::vector<Ends> found(static_cast<std::size_t>(count_));
    each([&](std::int64_t p) {
      const auto [least, most] = at::cpu::aminmax(at(p));
      found[static_cast<std::size_t>(p)] = {least.item<double>(), most.item<double>()};
    });
    Ends ends = found.front();
    for (const Ends& part : found) {
      // What is not a number stays.
      if (part[0] < ends[0] || std::isnan(part[0])) ends[0] = part[0];
      if (part[1] > ends[1] || std::isnan(part[1])) ends[1] = part[1];
    }
    return ends;
  }

 private:
  Grid& grid_;
  const TensorRef& all_;
  const std::int64_t count_;
};

bool are_ends(const Ends& ends) {
  return std::isfinite(ends[0]) && std::isfinite(ends[1]) && ends[0] < ends[1];
}

void add_up(const TensorRef& to, const std::vector<at::Tensor>& parts) {
  at::Tensor sum = to.alias();
  sum.copy_(parts.front());
  for (std::size_t p = 1; p < parts.size(); ++p) sum.add_(parts[p]);
}

void count_histc(Grid& grid, const TensorRef& to, const TensorRef& self, Ends ends) {
  const std::int64_t bins = to.numel();
  const Parts parts(grid, self);
  const Ends given = ends;
  if (ends[0] == ends[1]) ends = parts.extrema();
  if (!are_ends(ends)) {  // one value, or an error
    to.alias().copy_(at::native::histogram_histc(self.alias(), bins, given[0], given[1]));
    return;
  }
  std::vector<at::Tensor> counts(static_cast<std::size_t>(parts.count()));
  parts.each([&](std::int64_t p) {
    counts[static_cast<std::size_t>(p)] =
        at::native::histogram_histc(parts.at(p), bins, ends[0], ends[1]);
  });
  add_up(to, counts);
}

at::Tensor histc(const at::Tensor& self, std::int64_t bins, const at::Scalar& least,
                 const at::Scalar& most) {
  const bool real = !least.isComplex() && !most.isComplex();
  if (!real || !is_cut(self, bins) || !(least.toDouble() <= most.toDouble())) {
    return call_fallback<at::Tensor, const at::Tensor&, std::int64_t, const at::Scalar&,
                         const at::Scalar&>("aten::histc", "", self, bins, least, most);
  }
  at::Tensor result = empty({bins}, self.scalar_type(), self.device());
  launch("histc", Custom{}, count_histc, out(result), self.contiguous(),
         Ends{least.toDouble(), most.toDouble()});
  return result;
}

void count_histogram(Grid& grid, const TensorRef& to, const TensorRef& edges, const TensorRef& self,
                     const TensorRef& weight, const std::optional<Ends>& given) {
  const std::int64_t bins = to.numel();
  const Parts parts(grid, self);
  const Ends ends = given ? *given : parts.extrema();
  const auto count = [bins](const at::Tensor& elements, const at::Tensor& weights,
                            c10::ArrayRef<double> range) {
    return at::native::histogram(elements, bins, range,
                                 weights.defined() ? std::optional(weights) : std::nullopt, false);
  };
  if (!are_ends(ends)) {
    const auto [sums, bounds] = at::native::histogram(
        self.alias(), bins, given ? std::optional<c10::ArrayRef<double>>(*given) : std::nullopt,
        weight.defined() ? std::optional(weight.alias()) : std::nullopt, false);
    to.alias().copy_(sums);
    edges.alias().copy_(bounds);
    return;
  }
  std::vector<at::Tensor> counts(static_cast<std::size_t>(parts.count()));
  parts.each([&](std::int64_t p) {
    auto [sums, bounds] =
        count(parts.at(p), weight.defined() ? parts.at(weight, p) : at::Tensor(), ends);
    if (p == 0) edges.alias().copy_(bounds);
    counts[static_cast<std::size_t>(p)] = std::move(sums);
  });
  add_up(to, counts);
}

std::tuple<at::Tensor, at::Tensor> histogram(const at::Tensor& self, std::int64_t bins,
                                             std::optional<c10::ArrayRef<double>> range,
                                             const std::optional<at::Tensor>& weight,
                                             bool density) {
  const bool weighted = weight && weight->defined();
  const bool fits = !weighted || (weight->scalar_type() == self.scalar_type() &&
                                  weight->device() == self.device() &&
                                  weight->sizes() == self.sizes() && !weight->is_neg());
  if (density || !fits || !is_cut(self, bins) || (range && range->size() != 2)) {
    return call_fallback<std::tuple<at::Tensor, at::Tensor>, const at::Tensor&, std::int64_t,
                         std::optional<c10::ArrayRef<double>>, const std::optional<at::Tensor>&,
                         bool>("aten::histogram", "bin_ct", self, bins, range, weight, density);
  }
  at::Tensor sums = empty({bins}, self.scalar_type(), self.device());
  at::Tensor edges = empty({bins + 1}, self.scalar_type(), self.device());
  launch("histogram", Custom{}, count_histogram, out(sums), out(edges), self.contiguous(),
         weighted ? weight->contiguous() : at::Tensor(),
         range ? std::optional<Ends>({(*range)[0], (*range)[1]}) : std::nullopt);
  return {std::move(sums), std::move(edges)};
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histc", TORCH_FN(histc));
  m.impl("histogram.bin_ct", TORCH_FN(histogram));
}

}  // namespace loom::ops
