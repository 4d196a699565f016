// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What kernels have in common that go along one dimension of dense tensors by an index. Tensors are
// `outer` times `items` times `inner` elements, the index names items. Every element of a result is
// written by one part, in the order of the index: results depend neither on cores nor on parts.
// Thread: any.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::kernels::index {

/// What becomes of an element that is there and one that comes.
enum class Combine : std::uint8_t { kCopy, kAdd, kProduct, kMean, kMinimum, kMaximum };

struct Lines {
  std::int64_t outer = 1, items = 1, inner = 1;
  std::int64_t count = 1;     ///< of the index
  std::int64_t supplied = 1;  ///< of the source: at least `count`
};

/// The places that an index names.
class Places {
 public:
  /// Nothing if there are some beyond [0, items), or [-items, items) if it `wraps`. Index:
  /// std::int32_t, or std::int64_t, which is used where it lies.
  template <class Index>
  [[nodiscard]] static std::optional<Places> of(const Index* index, std::int64_t count,
                                                std::int64_t items, bool wraps);
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const noexcept {
    return data_[i] + (data_[i] >> 63 & wrapped_);
  }

 private:
  const std::int64_t* data_ = nullptr;
  std::int64_t count_ = 0, wrapped_ = 0;  // what is added to negative ones
  std::vector<std::int64_t> own_;         // of an index of std::int32_t
};

/// How often each of the items is named.
[[nodiscard]] std::vector<std::int64_t> times_named(const Places& places, std::int64_t items);

/// What a block writes: some of each of the three.
struct Part {
  std::int64_t outer_begin, outer_end, item_begin, item_end, column_begin, column_end;
};

/// Parts of the result: whole outer items while there are enough of them, then columns, then items,
/// for which each block looks at the whole index.
class Parts {
 public:
  /// `elements` is how many are read and written in all.
  Parts(const Lines& lines, std::int64_t elements, bool cuts_items) noexcept;

  [[nodiscard]] std::int64_t count() const noexcept { return outer_ * items_ * columns_; }
  [[nodiscard]] bool cuts_items() const noexcept { return items_ > 1; }
  [[nodiscard]] Part at(std::int64_t index) const noexcept;

 private:
  const Lines& lines_;
  std::int64_t outer_ = 1, items_ = 1, columns_ = 1;
};

/// Copies a part, unless both are the same memory.
void copy_part(std::byte* to, const std::byte* from, const Lines& lines, const Part& part,
               std::size_t item_bytes) noexcept;

/// Calls `run` with the function (old, new) that `how` is. Mean is a sum.
template <class T, class Run>
auto with_combination(Combine how, Run&& run) {
  switch (how) {
    case Combine::kProduct:
      return run([](T a, T b) { return static_cast<T>(a * b); });
    // What is not a number stays.
    case Combine::kMinimum:
      return run([](T a, T b) { return a < b || a != a ? a : b; });
    case Combine::kMaximum:
      return run([](T a, T b) { return a > b || a != a ? a : b; });
    default:
      return run([](T a, T b) { return static_cast<T>(a + b); });
  }
}

/// What an element is before the first one comes, if its own value does not count.
template <class T>
[[nodiscard]] T neutral(Combine how) noexcept;

}  // namespace loom::kernels::index
