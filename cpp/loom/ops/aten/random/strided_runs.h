// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The elements of tensors of one shape in logical order, cut into runs along which every tensor
// steps evenly. Random numbers belong to logical indices, so kernels find their place in memory
// through this whatever the layout; a contiguous tensor is one run.
// Thread: any; const after construction.

#include "loom/ops/launch/tensor_ref.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace loom::ops::random {

template <int kCount>
class StridedRuns {
 public:
  using Pointers = std::array<std::byte*, kCount>;
  using Steps = std::array<std::int64_t, kCount>;

  /// Requires: all operands have the sizes of the first one (expanded ones have strides of 0).
  explicit StridedRuns(const std::array<const TensorRef*, kCount>& operands) {
    for (int k = 0; k < kCount; ++k) bases_[k] = operands[k]->data();
    dims_.push_back({1, {}});
    for (std::int64_t d = 0; d < operands[0]->dim(); ++d) append(operands, d);
  }

  /// Bytes from one element of a run to the next, by operand.
  [[nodiscard]] const Steps& steps() const noexcept { return dims_.back().steps; }

  /// True when operand `k` is one gapless run of elements of `itemsize` bytes.
  [[nodiscard]] bool contiguous(int k, std::size_t itemsize) const noexcept {
    return dims_.size() == 1 && steps()[k] == static_cast<std::int64_t>(itemsize);
  }

  /// Calls body(pointers, done, length) for the runs that make up elements
  /// [begin, begin + count), where `done` elements of these came before.
  template <class Body>
  void visit(std::int64_t begin, std::int64_t count, Body&& body) const {
    std::int64_t done = 0;
    while (done < count) {
      const auto [pointers, inner] = locate(begin + done);
      const std::int64_t length = std::min(dims_.back().size - inner, count - done);
      body(pointers, done, length);
      done += length;
    }
  }

 private:
  struct Dim {
    std::int64_t size;
    Steps steps;  // bytes
  };

  // Adds dimension `d` inside the others, merged with the last one where memory allows.
  void append(const std::array<const TensorRef*, kCount>& operands, std::int64_t d) {
    Dim dim{operands[0]->sizes()[d], {}};
    if (dim.size == 1) return;
    bool merges = true;
    Dim& last = dims_.back();
    for (int k = 0; k < kCount; ++k) {
      dim.steps[k] = operands[k]->strides()[d] * static_cast<std::int64_t>(operands[k]->itemsize());
      merges = merges && last.steps[k] == dim.size * dim.steps[k];
    }
    if (last.size == 1) {
      last = dim;
    } else if (merges) {
      last = {last.size * dim.size, dim.steps};
    } else {
      dims_.push_back(dim);
    }
  }

  struct Place {
    Pointers pointers;
    std::int64_t inner;  // index along the last dimension
  };

  [[nodiscard]] Place locate(std::int64_t element) const {
    Place place{bases_, element % dims_.back().size};
    for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
      const std::int64_t index = element % dim->size;
      element /= dim->size;
      for (int k = 0; k < kCount; ++k) place.pointers[k] += index * dim->steps[k];
    }
    return place;
  }

  Pointers bases_;
  c10::SmallVector<Dim, 4> dims_;  // outermost first
};

}  // namespace loom::ops::random
