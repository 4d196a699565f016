// SPDX-License-Identifier: BSD-3-Clause
// Bags of embeddings and their gradients. Indices and offsets are looked at by the kernels, so what
// is wrong with them is reported at the next synchronisation, by ATen's kernel. Its kernels sum up
// one table after the other, find maxima on one core, and sort the indices for a gradient.
#include "loom/backend/registration.h"
#include "loom/kernels/copy/convert_row.h"
#include "loom/kernels/index/bag_gradients.h"
#include "loom/kernels/index/bags.h"
#include "loom/kernels/index/counting.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/meta/rule.h"
#include "loom/ops/recipes/indexed/bags.h"
#include "loom/ops/recipes/indexed/listed_sums.h"

#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_forward_only_native.h>
#include <ATen/ops/_embedding_bag_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

namespace loom::ops {
namespace {

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Weights = std::optional<at::Tensor>;

bool is_plain(const at::Tensor& tensor, c10::Device device) {
  return tensor.device() == device && tensor.layout() == c10::kStrided && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.is_nested();
}

bool has_kernel(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

/// Of the table, the indices and what belongs to them.
bool can_reduce(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
                const Weights& scale) {
  const c10::Device device = weight.device();
  return has_kernel(weight.scalar_type()) && is_plain(weight, device) &&
         is_plain(indices, device) && is_plain(offsets, device) && weight.dim() == 2 &&
         weight.numel() > 0 && weight.stride(1) == 1 && indices.is_contiguous() &&
         offsets.is_contiguous() && indices.numel() < std::numeric_limits<std::int32_t>::max() &&
         (!scale || !scale->defined() || (is_plain(*scale, device) && scale->is_contiguous()));
}

/// The operator, of which there are two: one whose results a gradient is computed from.
template <bool kHasGradient>
Four embedding_bag(const at::Tensor& weight, const at::Tensor& indices, const at::Tensor& offsets,
                   bool by_frequency, std::int64_t mode, bool sparse, const Weights& scale,
                   bool has_last, std::int64_t padding) {
  constexpr const char* kName =
      kHasGradient ? "aten::_embedding_bag" : "aten::_embedding_bag_forward_only";
  Inferred inferred;
  if (can_reduce(weight, indices, offsets, scale)) {
    const std::array<c10::IValue, 9> arguments{weight, indices, offsets,  by_frequency, mode,
                                               sparse, scale,   has_last, padding};
    inferred = kHasGradient ? inference::embedding_bag(arguments)
                            : inference::embedding_bag_forward_only(arguments);
  }
  if (!inferred || inferred->front().sizes[0] == 0) {
    return call_fallback<Four, const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                         std::int64_t, bool, const Weights&, bool, std::int64_t>(
        kName, "", weight, indices, offsets, by_frequency, mode, sparse, scale, has_last, padding);
  }
  const auto kernel = [](Grid& grid, const TensorRef& rows, const TensorRef& bags,
                         const TensorRef& sizes, const TensorRef& maxima, const TensorRef& table,
                         const TensorRef& places, const TensorRef& begins, const TensorRef& factors,
                         const BagMode& how) {
    const BagResults results{rows, bags, sizes, maxima};
    if (reduce_bags(grid, results, table, places, begins, factors, how)) return;
    // It says what is wrong.
    constexpr auto kReference = kHasGradient ? &at::native::_embedding_bag_cpu
                                             : &at::native::_embedding_bag_forward_only_cpu;
    const auto computed = kReference(table.alias(), places.alias(), begins.alias(), false, how.mode,
                                     false, factors.alias(), how.has_last, how.padding);
    rows.alias().copy_(std::get<0>(computed));
    bags.alias().copy_(std::get<1>(computed));
    sizes.alias().copy_(std::get<2>(computed));
    maxima.alias().copy_(std::get<3>(computed));
  };
  std::array<at::Tensor, 4> results;
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i] = empty((*inferred)[i].sizes, (*inferred)[i].dtype, weight.device());
  }
  const c10::ScalarType index = results[1].scalar_type();
  launch(kName + std::strlen("aten::"), Custom{}, kernel, out(results[0]), out(results[1]),
         out(results[2]), out(results[3]), weight, indices.to(index), offsets.to(index), scale,
         BagMode{.mode = mode, .padding = padding, .has_last = has_last});
  return {results[0], results[1], results[2], results[3]};
}

struct BagGradient {
  std::int64_t mode, padding;
};

/// Calls body(Index()) for the dtype of an index.
template <class Body>
void with_index(c10::ScalarType dtype, Body&& body) {
  dtype == c10::kInt ? body(std::int32_t{}) : body(std::int64_t{});
}

/// The bag of each place of the index.
std::vector<std::int64_t> bags_of_places(const TensorRef& known, const TensorRef& offsets,
                                         std::int64_t places, std::int64_t count) {
  std::vector<std::int64_t> bag_of(static_cast<std::size_t>(places));
  with_index(offsets.dtype(), [&]<class Index>(Index) {
    if (known.numel() == places) {
      std::copy_n(elements<const Index>(known), places, bag_of.begin());
      const auto [least, most] = kernels::index::least_and_most(bag_of.data(), 0, places);
      TORCH_CHECK_INDEX(least >= 0 && most < count, "embedding_bag: expected bags from 0 to ",
                        count - 1, ", got ", least, " to ", most);
      return;
    }
    const kernels::index::Bags<Index> bags{nullptr, elements<const Index>(offsets), count, places};
    const std::int64_t wrong = bags.first_misplaced();
    TORCH_CHECK(wrong == count, "embedding_bag: expected offsets in order, from 0 to ", places,
                ", got ", bags.begin(wrong), " before ", bags.begin(wrong + 1));
    name_bags(bags, 0, count, bag_of.data());
  });
  return bag_of;
}

/// What each place's gradient is multiplied by.
std::vector<float> factors_of_places(const TensorRef& bag_sizes, const TensorRef& scale,
                                     const std::vector<std::int64_t>& bag_of, std::int64_t mode) {
  std::vector<float> factors(bag_of.size(), 1);
  if (scale.defined()) {
    with_floats(scale.dtype(), [&]<class T>(T) {
      kernels::widen_row<Stored<T>>(factors.data(), elements<const Stored<T>>(scale),
                                    std::ssize(factors));
    });
  }
  if (mode == BagMode::kMean) {
    with_index(bag_sizes.dtype(), [&]<class Index>(Index) {
      kernels::index::divide_factors(factors, bag_of.data(), elements<const Index>(bag_sizes));
    });
  }
  return factors;
}

void add_bag_gradients(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                       const TensorRef& indices, const TensorRef& offsets, const TensorRef& known,
                       const TensorRef& bag_sizes, const TensorRef& scale, const BagGradient& how) {
  const std::vector<std::int64_t> bag_of =
      bags_of_places(known, offsets, indices.numel(), gradient.sizes()[0]);
  std::vector<float> factors;
  if (how.mode == BagMode::kMean || scale.defined()) {
    factors = factors_of_places(bag_sizes, scale, bag_of, how.mode);
  }
  sum_listed_rows(grid, result, indices,
                  {.rows = gradient,
                   .row_of = bag_of.data(),
                   .factors = factors.empty() ? nullptr : factors.data()},
                  how.padding);
}

/// Each element goes to the row that was the largest; a block is some columns.
void add_maxima_gradients(Grid& grid, const TensorRef& result, const TensorRef& gradient,
                          const TensorRef& maxima, const TensorRef& bag_sizes) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t rows = result.sizes()[0], columns = result.sizes()[1],
                     bags = gradient.sizes()[0];
  const std::int64_t lines = ceil_div(columns, kLine);
  const std::int64_t width =
      kLine * block_length(lines, static_cast<double>(kLine * (rows + 4 * bags)));
  with_floats(result.dtype(), [&]<class T>(T) {
    with_index(maxima.dtype(), [&]<class Index>(Index) {
      const kernels::index::MaximaGradients<Stored<T>, Index> gradients{
          elements<Stored<T>>(result),
          elements<const Stored<T>>(gradient),
          elements<const Index>(maxima),
          elements<const Index>(bag_sizes),
          rows,
          bags,
          columns};
      grid.run_by_any(ceil_div(columns, width), [&](std::int64_t block) {
        gradients.add(block * width, std::min(columns, (block + 1) * width));
      });
    });
  });
}

bool can_differentiate(const at::Tensor& grad, c10::ArrayRef<at::Tensor> indexing,
                       std::int64_t weights, bool sparse, const Weights& scale) {
  const c10::Device device = grad.device();
  if (sparse || !has_kernel(grad.scalar_type()) || grad.dim() != 2 || grad.numel() == 0 ||
      weights <= 0 || !is_plain(grad, device)) {
    return false;
  }
  const at::Tensor& indices = indexing.front();
  for (const at::Tensor& tensor : indexing) {
    if (!is_plain(tensor, device) || !tensor.is_contiguous() ||
        tensor.scalar_type() != indices.scalar_type()) {
      return false;
    }
  }
  return (indices.scalar_type() == c10::kLong || indices.scalar_type() == c10::kInt) &&
         indices.dim() == 1 && indices.numel() > 0 &&
         (!scale || !scale->defined() ||
          (is_plain(*scale, device) && scale->is_contiguous() &&
           scale->scalar_type() == grad.scalar_type() && scale->numel() == indices.numel()));
}

at::Tensor embedding_bag_backward(const at::Tensor& grad, const at::Tensor& indices,
                                  const at::Tensor& offsets, const at::Tensor& bags,
                                  const at::Tensor& bag_sizes, const at::Tensor& maxima,
                                  c10::SymInt weights, bool by_frequency, std::int64_t mode,
                                  bool sparse, const Weights& scale, std::int64_t padding) {
  const std::int64_t rows = weights.guard_int(__FILE__, __LINE__);
  const bool is_maximum = mode == BagMode::kMaximum;
  // What ATen scales by frequency, it scales by that of another row, as a rule: left to it.
  if (by_frequency ||
      !can_differentiate(grad, {indices, offsets, bags, bag_sizes, maxima}, rows, sparse, scale) ||
      mode < 0 || mode > BagMode::kMaximum || bag_sizes.numel() < grad.size(0) ||
      offsets.numel() < grad.size(0) || (is_maximum && maxima.sizes() != grad.sizes())) {
    return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, bool,
                         std::int64_t, bool, const Weights&, std::int64_t>(
        "aten::_embedding_bag_backward", "", grad, indices, offsets, bags, bag_sizes, maxima,
        weights, by_frequency, mode, sparse, scale, padding);
  }
  const at::Tensor dense = grad.contiguous();
  at::Tensor result = empty({rows, grad.size(1)}, grad.scalar_type(), grad.device());
  constexpr const char* kName = "_embedding_bag_backward";
  if (is_maximum) {
    launch(kName, Custom{}, add_maxima_gradients, out(result), dense, maxima, bag_sizes);
  } else {
    launch(kName, Custom{}, add_bag_gradients, out(result), dense, indices, offsets, bags,
           bag_sizes, scale, BagGradient{.mode = mode, .padding = padding});
  }
  return result;
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag", TORCH_FN(embedding_bag<true>));
  m.impl("_embedding_bag_forward_only", TORCH_FN(embedding_bag<false>));
  m.impl("_embedding_bag_backward", TORCH_FN(embedding_bag_backward));
}

}  // namespace loom::ops
