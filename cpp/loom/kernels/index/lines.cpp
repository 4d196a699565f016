// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/index/lines.h"

#include "loom/kernels/index/counting.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace loom::kernels::index {
namespace {

// What a core does in some 10 us, and enough parts for any machine (split.cpp).
constexpr std::int64_t kPartElements = 32768, kMostParts = 256;
// Neighbouring parts share few cache lines.
constexpr std::int64_t kLeastColumns = 64;
// Rows of this many elements take longer than the look at an index that is of another part.
constexpr std::int64_t kLongRow = 16;
constexpr std::int64_t kMostItemParts = 16;

/// Part `index` of `parts` of [0, length), all about as long.
std::int64_t begin_of(std::int64_t index, std::int64_t parts, std::int64_t length) {
  return length * index / parts;
}

}  // namespace

template <class Index>
std::optional<Places> Places::of(const Index* index, std::int64_t count, std::int64_t items,
                                 bool wraps) {
  Places places;
  places.count_ = count;
  places.wrapped_ = wraps ? items : 0;
  if constexpr (std::is_same_v<Index, std::int64_t>) {
    places.data_ = index;
  } else {
    places.own_.assign(index, index + count);
    places.data_ = places.own_.data();
  }
  std::int64_t negative = 0;  // has the sign of all that are not to be
  for (std::int64_t i = 0; i < count; ++i) {
    negative |= (places.data_[i] + places.wrapped_) | (items - 1 - places.data_[i]);
  }
  if (negative < 0) return std::nullopt;
  return places;
}

template std::optional<Places> Places::of(const std::int32_t*, std::int64_t, std::int64_t, bool);
template std::optional<Places> Places::of(const std::int64_t*, std::int64_t, std::int64_t, bool);

std::vector<std::int64_t> times_named(const Places& places, std::int64_t items) {
  std::vector<std::int64_t> times(static_cast<std::size_t>(items));
  count_into(times.data(), places, 0, places.count());
  return times;
}

Parts::Parts(const Lines& lines, std::int64_t elements, bool cuts_items) noexcept : lines_(lines) {
  std::int64_t wanted = std::clamp<std::int64_t>(elements / kPartElements, 1, kMostParts);
  outer_ = std::min(lines.outer, wanted);
  wanted /= outer_;
  columns_ = std::clamp<std::int64_t>(lines.inner / kLeastColumns, 1, wanted);
  wanted /= columns_;
  if (cuts_items && lines.inner / columns_ >= kLongRow) {
    items_ = std::clamp<std::int64_t>(std::min(wanted, lines.items), 1, kMostItemParts);
  }
}

Part Parts::at(std::int64_t index) const noexcept {
  const std::int64_t column = index % columns_, item = index / columns_ % items_,
                     outer = index / columns_ / items_;
  return {begin_of(outer, outer_, lines_.outer),    begin_of(outer + 1, outer_, lines_.outer),
          begin_of(item, items_, lines_.items),     begin_of(item + 1, items_, lines_.items),
          begin_of(column, columns_, lines_.inner), begin_of(column + 1, columns_, lines_.inner)};
}

void copy_part(std::byte* to, const std::byte* from, const Lines& lines, const Part& part,
               std::size_t item_bytes) noexcept {
  if (to == from) return;
  const auto bytes = static_cast<std::int64_t>(item_bytes);
  const auto copy = [&](std::int64_t begin, std::int64_t length) {
    std::memcpy(to + begin * bytes, from + begin * bytes, static_cast<std::size_t>(length * bytes));
  };
  const std::int64_t width = part.column_end - part.column_begin;
  for (std::int64_t outer = part.outer_begin; outer < part.outer_end; ++outer) {
    const std::int64_t first = outer * lines.items;
    if (width == lines.inner) {
      copy((first + part.item_begin) * width, (part.item_end - part.item_begin) * width);
      continue;
    }
    for (std::int64_t item = part.item_begin; item < part.item_end; ++item) {
      copy((first + item) * lines.inner + part.column_begin, width);
    }
  }
}

template <class T>
T neutral(Combine how) noexcept {
  using Limits = std::numeric_limits<T>;
  switch (how) {
    case Combine::kProduct:
      return T{1};
    case Combine::kMinimum:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case Combine::kMaximum:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default:
      return T{0};
  }
}

template float neutral<float>(Combine) noexcept;
template double neutral<double>(Combine) noexcept;
template std::int32_t neutral<std::int32_t>(Combine) noexcept;
template std::int64_t neutral<std::int64_t>(Combine) noexcept;

}  // namespace loom::kernels::index
