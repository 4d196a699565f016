// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/movement/interleave.h"

#include "loom/ops/random/isa_clones.h"
#include "loom/ops/with_bytes.h"

#include <algorithm>

namespace loom::ops {
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
LOOM_ISA_CLONES void interleave_two(const std::uint8_t* first, const std::uint8_t* second,
                                    std::int64_t count, std::uint8_t* to) {
  pairs(first, second, count, to);
}
LOOM_ISA_CLONES void interleave_two(const std::uint16_t* first, const std::uint16_t* second,
                                    std::int64_t count, std::uint16_t* to) {
  pairs(first, second, count, to);
}
LOOM_ISA_CLONES void interleave_two(const std::uint32_t* first, const std::uint32_t* second,
                                    std::int64_t count, std::uint32_t* to) {
  pairs(first, second, count, to);
}
LOOM_ISA_CLONES void interleave_two(const std::uint64_t* first, const std::uint64_t* second,
                                    std::int64_t count, std::uint64_t* to) {
  pairs(first, second, count, to);
}
void interleave_two(const SixteenBytes* first, const SixteenBytes* second, std::int64_t count,
                    SixteenBytes* to) {
  pairs(first, second, count, to);
}

template <class T>
void interleave(const std::vector<const std::byte*>& sources, std::int64_t begin, std::int64_t end,
                std::byte* result) {
  const auto count = static_cast<std::int64_t>(sources.size());
  T* to = reinterpret_cast<T*>(result) + begin * count;
  const auto source = [&](std::int64_t j) {
    return reinterpret_cast<const T*>(sources[static_cast<std::size_t>(j)]);
  };
  if (count == 2) return interleave_two(source(0) + begin, source(1) + begin, end - begin, to);
  const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t length = std::max<std::int64_t>(kBytesAtOnce / bytes, 1);
  for (std::int64_t i = begin; i < end; i += length, to += length * count) {
    const std::int64_t rows = std::min(length, end - i);
    for (std::int64_t j = 0; j < count; ++j) {
      const T* from = source(j) + i;
      for (std::int64_t row = 0; row < rows; ++row) to[row * count + j] = from[row];
    }
  }
}

}  // namespace

bool can_interleave(std::size_t item_bytes) noexcept {
  return item_bytes <= 16 && (item_bytes & (item_bytes - 1)) == 0;
}

void interleave_elements(const std::vector<const std::byte*>& sources, std::size_t item_bytes,
                         std::int64_t begin, std::int64_t end, std::byte* to) noexcept {
  switch (item_bytes) {
    case 1:
      return interleave<std::uint8_t>(sources, begin, end, to);
    case 2:
      return interleave<std::uint16_t>(sources, begin, end, to);
    case 4:
      return interleave<std::uint32_t>(sources, begin, end, to);
    case 8:
      return interleave<std::uint64_t>(sources, begin, end, to);
    default:
      return interleave<SixteenBytes>(sources, begin, end, to);
  }
}

}  // namespace loom::ops
