// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Small tensors over host memory and operators on them, for tests of recording.

#include "loom/fusion/expression.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace loom::testing {

/// Allocations begin at multiples of 512 bytes, as those of a device do.
template <class T>
struct DeviceAligned {
  using value_type = T;
  DeviceAligned() = default;
  template <class U>
  DeviceAligned(const DeviceAligned<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{512}));
  }
  void deallocate(T* data, std::size_t) { ::operator delete(data, std::align_val_t{512}); }
  friend bool operator==(const DeviceAligned&, const DeviceAligned&) = default;
};
using Elements = std::vector<float, DeviceAligned<float>>;

/// A float tensor that owns its elements; allocation() names it as an allocator's client would.
class FusedTensor {
 public:
  explicit FusedTensor(std::vector<std::int64_t> sizes, float value = 0)
      : sizes_(std::move(sizes)), strides_(sizes_.size()) {
    std::int64_t count = 1;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      strides_[d] = count;
      count *= sizes_[d];
    }
    elements_.assign(static_cast<std::size_t>(count), value);
  }

  [[nodiscard]] fusion::TensorAccess access() {
    return {.data = reinterpret_cast<std::byte*>(elements_.data()),
            .dtype = fusion::DType::kFloat,
            .sizes = sizes_,
            .strides = strides_,
            .numel = static_cast<std::int64_t>(elements_.size()),
            .contiguous = true,
            .allocation = elements_.data()};
  }
  float& operator[](std::size_t i) { return elements_[i]; }
  [[nodiscard]] const Elements& elements() const { return elements_; }

 private:
  std::vector<std::int64_t> sizes_, strides_;
  Elements elements_;
};

/// to = a op b.
inline fusion::Expression binary(fusion::Op op, const fusion::TensorAccess& to,
                                 const fusion::TensorAccess& a, const fusion::TensorAccess& b) {
  fusion::Expression expression("binary");
  const fusion::Node left = expression.load(a);
  expression.store(expression.apply(op, left, expression.load(b)), to);
  return expression;
}

/// to = the sums over the last dimension of a.
inline fusion::Expression row_sum(const fusion::TensorAccess& to, const fusion::TensorAccess& a) {
  fusion::Expression expression("sum");
  expression.reduce_over_last(1);
  expression.store(expression.apply(fusion::Op::kSum, expression.load(a)), to);
  return expression;
}

}  // namespace loom::testing
