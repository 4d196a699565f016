// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/interleave.h"

#include "loom/kernels/copy/item.h"

namespace loom::kernels::LOOM_SIMD {
namespace {

// Of what is written bit by bit, so much stays in the first-level cache until it is complete.
constexpr std::int64_t kBytesAtOnce = 16 << 10;

template <class T>
[[gnu::always_inline]] inline void pairs(const T* __restrict first, const T* __restrict second,
                                         std::int64_t count, T* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[2 * i] = first[i];
    to[2 * i + 1] = second[i];
  }
}

template <class T>
void interleave(std::span<const std::byte* const> sources, std::int64_t begin, std::int64_t end,
                std::byte* result) {
  const auto count = static_cast<std::int64_t>(sources.size());
  T* to = reinterpret_cast<T*>(result) + begin * count;
  const auto source = [&](std::int64_t j) {
    return reinterpret_cast<const T*>(sources[static_cast<std::size_t>(j)]);
  };
  if (count == 2) return pairs(source(0) + begin, source(1) + begin, end - begin, to);
  const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t length = bytes < kBytesAtOnce ? kBytesAtOnce / bytes : 1;
  for (std::int64_t i = begin; i < end; i += length, to += length * count) {
    const std::int64_t rows = length < end - i ? length : end - i;
    for (std::int64_t j = 0; j < count; ++j) {
      const T* from = source(j) + i;
      for (std::int64_t row = 0; row < rows; ++row) to[row * count + j] = from[row];
    }
  }
}

}  // namespace

void interleave_elements(std::span<const std::byte* const> sources, std::size_t item_bytes,
                         std::int64_t begin, std::int64_t end, std::byte* to) noexcept {
  with_bytes(item_bytes, [&]<class T>(T) { interleave<T>(sources, begin, end, to); });
}

}  // namespace loom::kernels::LOOM_SIMD
