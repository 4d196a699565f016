// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/combine.h"

#include "loom/simd/half.h"

#include <type_traits>

namespace loom::collectives::LOOM_SIMD {
namespace {

// Integers are summed and multiplied as unsigned ones, where wrapping around is defined.
template <class T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<std::int8_t> {
  using Type = std::uint8_t;
};
template <>
struct Wrapping<std::int16_t> {
  using Type = std::uint16_t;
};
template <>
struct Wrapping<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using Type = std::uint64_t;
};

/// In which a number of ranks always has room.
template <class T>
using Divided =
    std::conditional_t<static_cast<T>(0.5F) != 0, T,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

/// The type in which elements are combined, and the ways there and back.
template <class T>
struct Combined {
  using Type = T;
  static T load(T a) { return a; }
  static void store(T& to, T a) { to = a; }
};
template <class T>
struct CombinedHalf {
  using Type = float;
  static float load(T a) { return simd::widen(a); }
  static void store(T& to, float a) { simd::round_to(to, a); }
};
template <>
struct Combined<simd::Half> : CombinedHalf<simd::Half> {};
template <>
struct Combined<simd::BFloat16> : CombinedHalf<simd::BFloat16> {};

template <class T>
struct Sum {
  using U = typename Wrapping<T>::Type;
  T operator()(T a, T b) const { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }
};
template <class T>
struct Product {
  using U = typename Wrapping<T>::Type;
  T operator()(T a, T b) const {
    // What is narrower than an int would be promoted to one, which may overflow.
    if constexpr (sizeof(T) < sizeof(int)) {
      return static_cast<T>(static_cast<unsigned>(static_cast<U>(a)) * static_cast<U>(b));
    } else {
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    }
  }
};
template <class T>
struct Min {
  T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
template <class T>
struct Max {
  T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
template <class T>
struct And {
  T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
template <class T>
struct Or {
  T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
template <class T>
struct Xor {
  T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};

struct Nothing {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

// The intermediate values of so many elements stay in the first cache.
constexpr std::int64_t kBlock = 1024;

/// `before` is done to each element, `after` to each result.
template <class T, class Combine, class Before, class After>
void combine_elements(T* to, const void* const* sources, int ranks, std::int64_t count,
                      Combine combine, Before before, After after) {
  using Held = typename Combined<T>::Type;
  alignas(64) Held held[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = count - begin < kBlock ? count - begin : kBlock;
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i) held[i] = before(Combined<T>::load(first[i]));
    for (int rank = 1; rank < ranks; ++rank) {
      const T* from = static_cast<const T*>(sources[rank]) + begin;
      for (std::int64_t i = 0; i < size; ++i) {
        held[i] = combine(held[i], before(Combined<T>::load(from[i])));
      }
    }
    for (std::int64_t i = 0; i < size; ++i) Combined<T>::store(to[begin + i], after(held[i]));
  }
}

template <class T>
void combine_typed(void* to, const void* const* sources, int ranks, std::int64_t count,
                   const Combination& how) {
  using Held = typename Combined<T>::Type;
  auto* const out = static_cast<T*>(to);
  const auto plain = [&](auto combine) {
    combine_elements(out, sources, ranks, count, combine, Nothing{}, Nothing{});
  };
  constexpr bool kFloating = static_cast<Held>(0.5F) != 0;
  switch (how.reduction) {
    case Reduction::kSum:
      return plain(Sum<Held>{});
    case Reduction::kProduct:
      return plain(Product<Held>{});
    case Reduction::kMin:
      return plain(Min<Held>{});
    case Reduction::kMax:
      return plain(Max<Held>{});
    case Reduction::kAverage:
      return combine_elements(out, sources, ranks, count, Sum<Held>{}, Nothing{},
                              [divisor = static_cast<Divided<Held>>(ranks)](Held a) {
                                return static_cast<Held>(static_cast<Divided<Held>>(a) / divisor);
                              });
    case Reduction::kScaledSum:
      return combine_elements(
          out, sources, ranks, count, Sum<Held>{},
          [factor = static_cast<Held>(how.factor)](Held a) { return Product<Held>{}(a, factor); },
          Nothing{});
    default:
      if constexpr (!kFloating) {
        if (how.reduction == Reduction::kAnd) return plain(And<Held>{});
        if (how.reduction == Reduction::kOr) return plain(Or<Held>{});
        return plain(Xor<Held>{});
      }
  }
}

}  // namespace

void combine(void* to, const void* const* sources, int ranks, std::int64_t count,
             const Combination& how) noexcept {
  const auto typed = [&]<class T>(T*) { combine_typed<T>(to, sources, ranks, count, how); };
  switch (how.element) {
    case Element::kFloat32:
      return typed(static_cast<float*>(nullptr));
    case Element::kFloat64:
      return typed(static_cast<double*>(nullptr));
    case Element::kFloat16:
      return typed(static_cast<simd::Half*>(nullptr));
    case Element::kBFloat16:
      return typed(static_cast<simd::BFloat16*>(nullptr));
    case Element::kInt8:
      return typed(static_cast<std::int8_t*>(nullptr));
    case Element::kUInt8:
      return typed(static_cast<std::uint8_t*>(nullptr));
    case Element::kInt16:
      return typed(static_cast<std::int16_t*>(nullptr));
    case Element::kUInt16:
      return typed(static_cast<std::uint16_t*>(nullptr));
    case Element::kInt32:
      return typed(static_cast<std::int32_t*>(nullptr));
    case Element::kUInt32:
      return typed(static_cast<std::uint32_t*>(nullptr));
    case Element::kInt64:
      return typed(static_cast<std::int64_t*>(nullptr));
    case Element::kUInt64:
      return typed(static_cast<std::uint64_t*>(nullptr));
  }
}

}  // namespace loom::collectives::LOOM_SIMD
