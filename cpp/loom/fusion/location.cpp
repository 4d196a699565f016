// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/location.h"

#include <algorithm>
#include <cstdlib>

namespace loom::fusion {
namespace {

void set_contiguous(Space& space) noexcept {
  std::int64_t stride = 1;
  for (int d = space.dims; d-- > 0;) {
    space.strides[d] = stride;
    stride *= space.sizes[d];
  }
}

/// True when the elements fill a gapless range in some order of the dimensions: then each stride is
/// the number of elements that the dimensions inside it have. Of two with one stride neither is
/// inside the other: their elements overlap.
bool dense(const TensorAccess& access) noexcept {
  const std::size_t dims = access.sizes.size();
  for (std::size_t d = 0; d < dims; ++d) {
    if (access.sizes[d] == 1) continue;
    std::int64_t inside = 1;
    for (std::size_t other = 0; other < dims; ++other) {
      if (other == d || access.sizes[other] == 1) continue;
      if (access.strides[other] == access.strides[d]) return false;
      if (access.strides[other] < access.strides[d]) inside *= access.sizes[other];
    }
    if (access.strides[d] != inside) return false;
  }
  return true;
}

/// A dimension of two boxes of elements, and how far the dimensions inside it reach.
struct StridedDim {
  std::int64_t size, stride, inside;
};

/// Whether two boxes of the same steps, the largest stride first, meet if they begin `distance`
/// elements apart. Requires: no step is within reach of those inside it.
bool meet(std::span<const StridedDim> steps, std::int64_t distance) noexcept {
  distance = std::abs(distance);
  if (steps.empty()) return distance == 0;
  const StridedDim& step = steps.front();
  const std::int64_t below = distance / step.stride, rest = distance % step.stride;
  if (below < step.size && rest <= step.inside && meet(steps.subspan(1), rest)) return true;
  const std::int64_t beyond = step.stride - rest;
  return below + 1 < step.size && beyond <= step.inside && meet(steps.subspan(1), beyond);
}

}  // namespace

bool equal(Sizes a, Sizes b) noexcept { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

std::int64_t product(Sizes sizes) noexcept {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

Space space_of(const TensorAccess& access) noexcept {
  Space space;
  space.dims = static_cast<int>(access.sizes.size());
  space.numel = access.numel;
  std::copy(access.sizes.begin(), access.sizes.end(), space.sizes.begin());
  if (access.contiguous || !dense(access)) {
    set_contiguous(space);
    return space;
  }
  std::copy(access.strides.begin(), access.strides.end(), space.strides.begin());
  space.contiguous = false;
  return space;
}

bool row_shaped(Sizes sizes, const Space& space) noexcept {
  const auto rows = static_cast<std::size_t>(space.row_dims());
  if (sizes.size() != rows && sizes.size() != static_cast<std::size_t>(space.dims)) return false;
  if (!equal(sizes.first(rows), Sizes(space.sizes).first(rows))) return false;
  return std::all_of(sizes.begin() + static_cast<std::ptrdiff_t>(rows), sizes.end(),
                     [](std::int64_t size) { return size == 1; });
}

bool Location::distinct(const Space& space) const noexcept {
  if (layout != Layout::kGeneral) return true;
  for (int d = 0; d < space.dims; ++d) {
    if (space.sizes[d] == 1) continue;
    std::int64_t inside = 0;
    for (int other = 0; other < space.dims; ++other) {
      const bool inner = other != d && strides[other] <= strides[d];
      if (inner && space.sizes[other] > 1) inside += strides[other] * (space.sizes[other] - 1);
    }
    if (strides[d] <= inside) return false;
  }
  return true;
}

bool Location::uniform(const Space& space) const noexcept {
  if (layout == Layout::kFull) return false;
  if (layout != Layout::kGeneral) return true;
  return space.reduced_dims > 0 && std::all_of(strides + space.row_dims(), strides + space.dims,
                                               [](std::int64_t stride) { return stride == 0; });
}

std::int64_t Location::stride(int d, const Space& space) const noexcept {
  switch (layout) {
    case Layout::kFull:
      return space.strides[d];
    case Layout::kRow:
      return d < space.row_dims() ? product(Sizes(space.sizes)
                                                .first(static_cast<std::size_t>(space.row_dims()))
                                                .subspan(static_cast<std::size_t>(d) + 1))
                                  : 0;
    case Layout::kOne:
      return 0;
    case Layout::kGeneral:
      return strides[d];
  }
  return 0;
}

bool Location::has_strides_of(const Location& other, const Space& space) const noexcept {
  for (int d = 0; d < space.dims; ++d) {
    if (space.sizes[d] > 1 && stride(d, space) != other.stride(d, space)) return false;
  }
  return true;
}

bool Location::lies_between(const Location& other, const Space& space) const noexcept {
  const auto item = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t bytes = other.data - data;
  if (static_cast<std::int64_t>(size_of(other.dtype)) != item || bytes % item != 0) return false;
  std::array<StridedDim, kMaxDims> steps;  // the largest stride first
  std::size_t count = 0;
  for (int d = 0; d < space.dims; ++d) {
    if (space.sizes[d] == 1) continue;
    const std::int64_t step = stride(d, space);
    if (step <= 0 || step != other.stride(d, space)) return false;
    std::size_t place = count++;
    for (; place > 0 && steps[place - 1].stride < step; --place) steps[place] = steps[place - 1];
    steps[place] = {space.sizes[d], step, 0};
  }
  std::int64_t reach = 0;
  for (std::size_t i = count; i-- > 0;) {
    steps[i].inside = reach;
    if (steps[i].stride <= reach) return false;
    reach += steps[i].stride * (steps[i].size - 1);
  }
  return !meet({steps.data(), count}, bytes / item);
}

}  // namespace loom::fusion
