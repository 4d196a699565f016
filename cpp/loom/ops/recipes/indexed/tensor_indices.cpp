// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/indexed/tensor_indices.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/index/elements.h"
#include "loom/kernels/index/joint_places.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/recipes/indexed/read_rows.h"
#include "loom/ops/recipes/indexed/write_rows.h"

#include <ATen/DimVector.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

namespace loom::ops {
namespace {

constexpr std::size_t kMostIndices = 4;
// Of a place that an index contributes to, where an addition of a large vector costs 1.
constexpr double kPlaceCost = 4;

/// Indices of dimensions [dim, dim + count), all of the same sizes.
struct Joint {
  std::array<at::Tensor, kMostIndices> indices;
  std::int64_t dim = 0;
  std::size_t count = 0;
};

// Of the same sizes they are vectors, others are repeated where they lie.
void make_alike(Joint& joint) {
  std::vector<at::Tensor> given(joint.indices.begin(), joint.indices.begin() + joint.count);
  const bool alike = std::all_of(given.begin(), given.end(), [&](const at::Tensor& index) {
    return index.sizes() == given[0].sizes();
  });
  if (!alike) given = at::expand_outplace(given);
  for (std::size_t i = 0; i < joint.count; ++i) {
    joint.indices[i] = alike ? given[i].view({-1}) : given[i];
  }
}

/// The indices, if they are dense, of integers, and stand side by side. A result by one that is
/// transposed lies as the index does.
std::optional<Joint> joint_of(const at::Tensor& self, const Indices& indices) {
  Joint joint;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const std::optional<at::Tensor> index = indices[d];
    if (!index || !index->defined()) continue;
    const auto dtype = index->scalar_type();
    if (joint.count == 0) joint.dim = static_cast<std::int64_t>(d);
    if (joint.count == kMostIndices || joint.dim + joint.count != d ||
        (dtype != c10::kLong && dtype != c10::kInt) || index->device() != self.device() ||
        index->numel() == 0 || !index->is_contiguous()) {
      return std::nullopt;
    }
    joint.indices[joint.count++] = *index;
  }
  if (joint.count == 0) return std::nullopt;
  make_alike(joint);
  return joint;
}

/// The dtypes that ATen's kernels know for sure.
bool is_common(c10::ScalarType dtype) {
  return (c10::isIntegralType(dtype, /*includeBool=*/true) &&
          !c10::isBarebonesUnsignedType(dtype)) ||
         dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf ||
         dtype == c10::kBFloat16 || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

bool is_plain(const at::Tensor& self) {
  return self.layout() == c10::kStrided && self.is_contiguous() && !self.is_conj() &&
         !self.is_neg() && !self._is_zerotensor() && self.numel() > 0 && self.dim() > 0 &&
         is_common(self.scalar_type());
}

using IndexRefs = std::array<const TensorRef*, kMostIndices>;

/// What ATen's kernel is called with: it says which index is not there.
Indices as_indices(const IndexRefs& refs, std::int64_t dim) {
  Indices indices;
  for (std::int64_t d = 0; d < dim; ++d) indices.push_back(std::nullopt);
  for (const TensorRef* ref : refs) {
    if (ref->defined()) indices.push_back(ref->alias());
  }
  return indices;
}

/// Those of what the indices select, as they are given to the kernel.
at::DimVector selected_sizes(const TensorRef& self, const IndexRefs& refs, std::int64_t dim) {
  const auto sizes = self.sizes();
  at::DimVector selected(sizes.begin(), sizes.begin() + dim);
  selected.append(refs[0]->sizes().begin(), refs[0]->sizes().end());
  for (const TensorRef* ref : refs) dim += ref->defined() ? 1 : 0;
  selected.append(sizes.begin() + dim, sizes.end());
  return selected;
}

/// The tensor as items along one dimension, inner ones counted in elements.
Lines joint_lines(const TensorRef& self, const IndexRefs& refs, std::int64_t dim) {
  const auto sizes = self.sizes();
  std::int64_t end = dim;
  for (const TensorRef* ref : refs) end += ref->defined() ? 1 : 0;
  const std::int64_t count = refs[0]->numel();
  return {.outer = c10::multiply_integers(sizes.slice(0, dim)),
          .items = c10::multiply_integers(sizes.slice(dim, end - dim)),
          .inner = c10::multiply_integers(sizes.slice(end)),
          .count = count,
          .supplied = count};
}

/// What all indices together contribute to places [begin, end), which `to` begins with. False if
/// one is not there.
bool put_places(const TensorRef& self, const IndexRefs& refs, std::int64_t dim, std::int64_t begin,
                std::int64_t end, std::int64_t* to) {
  std::fill_n(to, end - begin, 0);
  bool all_there = true;
  std::int64_t step = 1;
  const auto add = [&]<class Index>(const TensorRef& index, std::int64_t items, Index) {
    const auto strides = index.strides();
    all_there &=
        kernels::index::add_places<Index>({elements<const Index>(index), index.sizes().data(),
                                           strides.data(), index.dim(), items, step},
                                          begin, end, to);
  };
  for (std::size_t i = kMostIndices; i-- > 0;) {
    const TensorRef& index = *refs[i];
    if (!index.defined()) continue;
    const std::int64_t items = self.sizes()[dim + static_cast<std::int64_t>(i)];
    index.dtype() == c10::kInt ? add(index, items, std::int32_t{})
                               : add(index, items, std::int64_t{});
    step *= items;
  }
  return all_there;
}

using PlaceList = std::unique_ptr<std::int64_t[]>;

/// The places of all indices; null if one is not there.
PlaceList joint_places(Grid& grid, const TensorRef& self, const IndexRefs& refs, std::int64_t dim) {
  const std::int64_t count = refs[0]->numel();
  PlaceList places =
      std::make_unique_for_overwrite<std::int64_t[]>(static_cast<std::size_t>(count));
  const std::int64_t block = block_length(count, kPlaceCost);
  std::atomic<bool> all_there = true;
  grid.run_by_any(ceil_div(count, block), [&](std::int64_t number) {
    const std::int64_t begin = number * block, end = std::min(count, begin + block);
    if (!put_places(self, refs, dim, begin, end, places.get() + begin)) all_there = false;
  });
  return all_there ? std::move(places) : nullptr;
}

double item_cost(const Lines& lines) {
  return 4 + static_cast<double>(lines.inner) / sizeof(float);
}

/// Items of a tensor that has nothing before the dimension, some at a time: their places stay in
/// the first-level cache.
bool read_items(Grid& grid, const TensorRef& to, const TensorRef& from, const IndexRefs& refs,
                std::int64_t dim, const Lines& lines) {
  constexpr std::int64_t kPlaces = 512;
  const std::int64_t block = block_length(lines.count, kPlaceCost + item_cost(lines));
  std::atomic<bool> all_there = true;
  grid.run_by_any(ceil_div(lines.count, block), [&](std::int64_t number) {
    std::int64_t places[kPlaces];
    const std::int64_t stop = std::min(lines.count, (number + 1) * block);
    for (std::int64_t begin = number * block; begin < stop; begin += kPlaces) {
      const std::int64_t end = std::min(stop, begin + kPlaces);
      if (!put_places(from, refs, dim, begin, end, places)) {
        all_there = false;
        return;
      }
      (void)kernels::index::gather_items(to.data() + begin * lines.inner, from.data(), places,
                                         lines, 0, end - begin);
    }
  });
  return all_there;
}

/// The same places of all that there is before the dimension.
bool read_lines(Grid& grid, const TensorRef& to, const TensorRef& from, const IndexRefs& refs,
                std::int64_t dim, const Lines& lines) {
  const PlaceList places = joint_places(grid, from, refs, dim);
  if (!places) return false;
  const std::int64_t total = lines.outer * lines.count;
  const std::int64_t block = block_length(total, item_cost(lines));
  grid.run_by_any(ceil_div(total, block), [&](std::int64_t i) {
    (void)kernels::index::gather_items(to.data(), from.data(), places.get(), lines, i * block,
                                       std::min(total, (i + 1) * block));
  });
  return true;
}

void read_kernel(Grid& grid, const TensorRef& to, const TensorRef& from, const TensorRef& first,
                 const TensorRef& second, const TensorRef& third, const TensorRef& fourth,
                 std::int64_t dim) {
  const IndexRefs refs{&first, &second, &third, &fourth};
  Lines lines = joint_lines(from, refs, dim);
  lines.inner *= static_cast<std::int64_t>(from.itemsize());
  if (lines.outer == 1 ? read_items(grid, to, from, refs, dim, lines)
                       : read_lines(grid, to, from, refs, dim, lines)) {
    return;
  }
  at::Tensor result = to.alias();
  at::native::copy_(result, at::index(from.alias(), as_indices(refs, dim)));
}

void write_kernel(Grid& grid, const TensorRef& to, const TensorRef& first, const TensorRef& second,
                  const TensorRef& third, const TensorRef& fourth, const TensorRef& with,
                  std::int64_t dim, Combine how) {
  const IndexRefs refs{&first, &second, &third, &fourth};
  const PlaceList list = joint_places(grid, to, refs, dim);
  const Lines lines = joint_lines(to, refs, dim);
  const auto places =
      list ? Places::of(list.get(), lines.count, lines.items, /*wraps=*/false) : std::nullopt;
  if (places) return write_rows(grid, to, to, *places, with, lines, {.how = how});
  at::Tensor result = to.alias();
  result.index_put_(as_indices(refs, dim), with.alias().view(selected_sizes(to, refs, dim)),
                    how == Combine::kAdd);
}

}  // namespace

std::optional<at::Tensor> read_by_indices(const at::Tensor& self, const Indices& indices,
                                          c10::IntArrayRef selected) {
  if (!is_plain(self)) return std::nullopt;
  const auto joint = joint_of(self, indices);
  if (!joint) return std::nullopt;
  const auto& given = joint->indices;
  at::Tensor result = empty(selected, self.scalar_type(), self.device());
  if (joint->count > 1 || joint->dim > 0) {
    launch("index", Custom{}, read_kernel, out(result), self, given[0], given[1], given[2],
           given[3], joint->dim);
    return result;
  }
  const auto kernel = [](Grid& grid, const TensorRef& to, const TensorRef& from,
                         const TensorRef& index) {
    if (read_rows(grid, to, from, index)) return;
    const TensorRef none;
    at::Tensor rows = to.alias();
    at::native::copy_(rows, at::index(from.alias(), as_indices({&index, &none, &none, &none}, 0)));
  };
  launch("index", Custom{}, kernel, out(result), self, given[0]);
  return result;
}

bool write_by_indices(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                      bool accumulate, c10::IntArrayRef selected) {
  const Combine how = accumulate ? Combine::kAdd : Combine::kCopy;
  if (!is_plain(self) || values.scalar_type() != self.scalar_type() ||
      values.layout() != c10::kStrided || values._is_zerotensor() ||
      !can_combine(how, self.scalar_type())) {
    return false;
  }
  const auto joint = joint_of(self, indices);
  if (!joint) return false;
  const auto& given = joint->indices;
  for (std::size_t i = 0; i < joint->count; ++i) {
    if (at::get_overlap_status(self, given[i]) != at::MemOverlapStatus::No) return false;
  }
  const bool elsewhere = values.device() != self.device();
  const at::Tensor there = elsewhere ? values.to(self.device()) : values;
  if (at::get_overlap_status(self, there) != at::MemOverlapStatus::No) return false;
  const at::Tensor items = there.expand(selected).contiguous().resolve_conj().resolve_neg();
  launch("index_put_", Custom{}, write_kernel, inout(self), given[0], given[1], given[2], given[3],
         items, joint->dim, how);
  return true;
}

}  // namespace loom::ops
