// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/element_order.h"

#include "loom/kernels/copy/item.h"

#include <cstring>

namespace loom::kernels::LOOM_SIMD {
namespace {

constexpr std::size_t kLine = 64;
using Vector [[gnu::vector_size(kLine)]] = char;

struct ThirtyTwo {
  SixteenBytes low, high;
};

template <class T>
[[gnu::always_inline]] inline void reverse(T* __restrict to, const T* __restrict from,
                                           std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[-i];
}

// A run as one or two items that may overlap.
template <class T>
void copy_pairs(std::byte* to, const std::byte* from, const ElementSteps& runs, std::size_t bytes) {
  const std::size_t second = bytes - sizeof(T);
  for (std::int64_t i = 0; i < runs.count; ++i, to += runs.to, from += runs.from) {
    T first, last;
    std::memcpy(&first, from, sizeof(T));
    std::memcpy(&last, from + second, sizeof(T));
    std::memcpy(to, &first, sizeof(T));
    std::memcpy(to + second, &last, sizeof(T));
  }
}

}  // namespace

void copy_by_table(std::byte* to, const std::byte* from, const std::int32_t* offsets,
                   std::int64_t count, std::size_t item_bytes) noexcept {
  with_bytes(item_bytes, [&]<class T>(T) {
    std::byte* __restrict item = to;
    for (std::int64_t i = 0; i < count; ++i, item += sizeof(T)) {
      copy_item<T>(item, from + offsets[i]);
    }
  });
}

void copy_reversed(std::byte* to, const std::byte* from, std::int64_t count,
                   std::size_t item_bytes) noexcept {
  with_bytes(item_bytes, [&]<class T>(T) {
    reverse(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), count);
  });
}

void copy_matrix(std::byte* to, const std::byte* from, const ElementSteps& outer,
                 const ElementSteps& inner, std::size_t item_bytes) noexcept {
  with_bytes(item_bytes, [&]<class T>(T) {
    for (std::int64_t o = 0; o < outer.count; ++o) {
      std::byte* item = to + o * outer.to;
      const std::byte* source = from + o * outer.from;
      for (std::int64_t i = 0; i < inner.count; ++i, item += inner.to, source += inner.from) {
        copy_item<T>(item, source);
      }
    }
  });
}

void copy_tiny_runs(std::byte* to, const std::byte* from, const ElementSteps& runs,
                    std::size_t bytes) noexcept {
  if (bytes >= 32) return copy_pairs<ThirtyTwo>(to, from, runs, bytes);
  if (bytes >= 16) return copy_pairs<SixteenBytes>(to, from, runs, bytes);
  if (bytes >= 8) return copy_pairs<std::uint64_t>(to, from, runs, bytes);
  if (bytes >= 4) return copy_pairs<std::uint32_t>(to, from, runs, bytes);
  if (bytes >= 2) return copy_pairs<std::uint16_t>(to, from, runs, bytes);
  copy_pairs<std::uint8_t>(to, from, runs, bytes);
}

// The last vector may overlap the one before.
void copy_short_runs(std::byte* to, const std::byte* from, const ElementSteps& runs,
                     std::size_t bytes) noexcept {
  for (std::int64_t i = 0; i < runs.count; ++i, to += runs.to, from += runs.from) {
    Vector next, last;
    std::memcpy(&last, from + bytes - kLine, kLine);
    for (std::size_t at = 0; at + kLine < bytes; at += kLine) {
      std::memcpy(&next, from + at, kLine);
      std::memcpy(to + at, &next, kLine);
    }
    std::memcpy(to + bytes - kLine, &last, kLine);
  }
}

}  // namespace loom::kernels::LOOM_SIMD
