// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which loop is for which operation: included once for each instruction set.

#include "loom/fusion/primitive_memory.h"
#include "loom/fusion/primitives_impl.h"
#include "loom/fusion/vector_math_list.h"

namespace loom::fusion {
namespace {  // NOLINT(misc-anonymous-namespace-in-header): one copy for each instruction set

template <class T>
struct Of {
  using Type = T;
};

/// find(Of<T>()) for the C++ type of `type`; null for types that have no such operation.
template <class Find>
Primitive any_type(Type type, Find find) {
  switch (type) {
    case Type::kMask:
      return find(Of<Mask>());
    case Type::kInt32:
      return find(Of<std::int32_t>());
    case Type::kInt64:
      return find(Of<std::int64_t>());
    case Type::kFloat:
      return find(Of<float>());
    case Type::kDouble:
      return find(Of<double>());
  }
  return nullptr;
}
template <class Find>
Primitive number(Type type, Find find) {
  return any_type(type, [find]<class T>(Of<T> of) -> Primitive {
    if constexpr (sizeof(T) == 1)
      return nullptr;
    else
      return find(of);
  });
}
template <class Find>
Primitive floating(Type type, Find find) {
  if (type == Type::kFloat) return find(Of<float>());
  return type == Type::kDouble ? find(Of<double>()) : nullptr;
}
template <class Find>
Primitive integer(Type type, Find find) {
  if (type == Type::kMask) return find(Of<Mask>());
  if (type == Type::kInt32) return find(Of<std::int32_t>());
  return type == Type::kInt64 ? find(Of<std::int64_t>()) : nullptr;
}

// What to find for each kind of operation, as arguments for the above.
template <class F>
constexpr auto kUnary = []<class T>(Of<T>) -> Primitive { return &unary<F, T, T>; };
template <class F, class R>
constexpr auto kUnaryTo = []<class T>(Of<T>) -> Primitive { return &unary<F, R, T>; };

template <class F>
auto binary_finder(unsigned uniform) {
  return [uniform]<class T>(Of<T>) -> Primitive {
    using Result = decltype(F::apply(T(), T()));
    if (uniform == kUniformA) return &binary<F, Result, T, true, false>;
    if (uniform == kUniformB) return &binary<F, Result, T, false, true>;
    return &binary<F, Result, T, false, false>;
  };
}

/// Loop<T, a, b, c> with the uniform operands as template arguments.
#define LOOM_TERNARY(name, loop)                                                                 \
  template <class T>                                                                             \
  Primitive name(unsigned uniform) {                                                             \
    constexpr Primitive kLoops[] = {&loop<T, false, false, false>, &loop<T, true, false, false>, \
                                    &loop<T, false, true, false>,  &loop<T, true, true, false>,  \
                                    &loop<T, false, false, true>,  &loop<T, true, false, true>,  \
                                    &loop<T, false, true, true>};                                \
    return kLoops[uniform % 7];                                                                  \
  }
LOOM_TERNARY(find_select, select_loop)
LOOM_TERNARY(find_mul_add, mul_add_loop)
#undef LOOM_TERNARY

template <class T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type = FloatVector;
};
template <>
struct VectorOf<double> {
  using Type = DoubleVector;
};

template <Op op>
Primitive find_math_unary(Type type) {
  return floating(type, []<class T>(Of<T>) -> Primitive {
    return &math_unary<op, typename VectorOf<T>::Type, T>;
  });
}
template <Op op>
Primitive find_math_binary(Type type, unsigned uniform) {
  return floating(type, [uniform]<class T>(Of<T>) -> Primitive {
    using Vector = typename VectorOf<T>::Type;
    if (uniform == kUniformA) return &math_binary<op, Vector, T, true, false>;
    if (uniform == kUniformB) return &math_binary<op, Vector, T, false, true>;
    return &math_binary<op, Vector, T, false, false>;
  });
}

Primitive find_function(Op op, Type type, unsigned uniform) {
  switch (op) {
#define LOOM_CASE(op, name, float_suffix, double_suffix) \
  case Op::op:                                           \
    return find_math_unary<Op::op>(type);
    LOOM_SLEEF_UNARY(LOOM_CASE)
    LOOM_SLEEF_ANGLE(LOOM_CASE)
    LOOM_SLEEF_HYPERBOLIC(LOOM_CASE)
    LOOM_CASE(kNormalCdf, normal_cdf, , )
#undef LOOM_CASE
#define LOOM_CASE(op, name, float_suffix, double_suffix) \
  case Op::op:                                           \
    return find_math_binary<Op::op>(type, uniform);
    LOOM_SLEEF_BINARY(LOOM_CASE)
    LOOM_SLEEF_REMAINDER(LOOM_CASE)
#undef LOOM_CASE
    default:
      return nullptr;
  }
}

Primitive find_unary(Op op, Type type) {
  const bool is_floating = type == Type::kFloat || type == Type::kDouble;
  const bool is_float = type == Type::kFloat, is_int32 = type == Type::kInt32;
  switch (op) {
    case Op::kNeg:
      return number(type, kUnary<Neg>);
    case Op::kAbs:
      return is_floating ? floating(type, kUnary<FloatAbs>) : number(type, kUnary<IntegerAbs>);
    case Op::kSign:
      return number(type, kUnary<Sign>);
    case Op::kSqrt:
      return floating(type, kUnary<Sqrt>);
    case Op::kRsqrt:
      return floating(type, kUnary<Rsqrt>);
    case Op::kReciprocal:
      return floating(type, kUnary<Reciprocal>);
    case Op::kFloor:
      return floating(type, kUnary<Floor>);
    case Op::kCeil:
      return floating(type, kUnary<Ceil>);
    case Op::kRound:
      return floating(type, kUnary<Round>);
    case Op::kTrunc:
      return floating(type, kUnary<Trunc>);
    case Op::kRoundHalf:
      return is_float ? &unary<RoundHalf, float, float> : nullptr;
    case Op::kRoundBFloat16:
      return is_float ? &unary<RoundBFloat16, float, float> : nullptr;
    case Op::kWrapUInt8:
      return is_int32 ? &unary<WrapUInt8, std::int32_t, std::int32_t> : nullptr;
    case Op::kWrapInt8:
      return is_int32 ? &unary<WrapInt8, std::int32_t, std::int32_t> : nullptr;
    case Op::kWrapInt16:
      return is_int32 ? &unary<WrapInt16, std::int32_t, std::int32_t> : nullptr;
    case Op::kNot:
      return integer(type, kUnary<Not>);
    case Op::kIsNan:
      return floating(type, kUnaryTo<IsNan, Mask>);
    case Op::kToMask:
      return any_type(type, kUnaryTo<Convert<Mask>, Mask>);
    case Op::kToInt32:
      return any_type(type, kUnaryTo<Convert<std::int32_t>, std::int32_t>);
    case Op::kToInt64:
      return any_type(type, kUnaryTo<Convert<std::int64_t>, std::int64_t>);
    case Op::kToFloat:
      return any_type(type, kUnaryTo<Convert<float>, float>);
    case Op::kToDouble:
      return any_type(type, kUnaryTo<Convert<double>, double>);
    default:
      return nullptr;
  }
}

Primitive find_binary(Op op, Type type, unsigned uniform) {
  switch (op) {
    case Op::kAdd:
      return number(type, binary_finder<Add>(uniform));
    case Op::kSub:
      return number(type, binary_finder<Sub>(uniform));
    case Op::kMul:
      return number(type, binary_finder<Mul>(uniform));
    case Op::kMaximum:
      return number(type, binary_finder<Maximum>(uniform));
    case Op::kMinimum:
      return number(type, binary_finder<Minimum>(uniform));
    case Op::kDiv:
      return floating(type, binary_finder<Div>(uniform));
    case Op::kFMax:
      return floating(type, binary_finder<FMax>(uniform));
    case Op::kFMin:
      return floating(type, binary_finder<FMin>(uniform));
    case Op::kCopySign:
      return floating(type, binary_finder<CopySign>(uniform));
    case Op::kAnd:
      return integer(type, binary_finder<And>(uniform));
    case Op::kOr:
      return integer(type, binary_finder<Or>(uniform));
    case Op::kXor:
      return integer(type, binary_finder<Xor>(uniform));
    case Op::kShiftLeft:
      return type == Type::kMask ? nullptr : integer(type, binary_finder<ShiftLeft>(uniform));
    case Op::kShiftRight:
      return type == Type::kMask ? nullptr : integer(type, binary_finder<ShiftRight>(uniform));
    case Op::kEq:
      return any_type(type, binary_finder<Eq>(uniform));
    case Op::kNe:
      return any_type(type, binary_finder<Ne>(uniform));
    case Op::kLt:
      return number(type, binary_finder<Lt>(uniform));
    case Op::kLe:
      return number(type, binary_finder<Le>(uniform));
    case Op::kGt:
      return number(type, binary_finder<Gt>(uniform));
    case Op::kGe:
      return number(type, binary_finder<Ge>(uniform));
    default:
      return nullptr;
  }
}

// Sums of integers are computed as unsigned numbers, which wrap around.
Primitive find_accumulate(Op op, Type type) {
  return number(type, [op]<class T>(Of<T>) -> Primitive {
    if (op == Op::kSum) return &accumulate<ReduceSum, Wrap<T>>;
    return op == Op::kMax ? &accumulate<ReduceMax, T> : &accumulate<ReduceMin, T>;
  });
}
Primitive find_start(Op op, Type type) {
  return number(type, [op]<class T>(Of<T>) -> Primitive {
    if (op == Op::kSum) return &start_reduction<Op::kSum, T>;
    return op == Op::kMax ? &start_reduction<Op::kMax, T> : &start_reduction<Op::kMin, T>;
  });
}
Primitive find_finish(Op op, Type type) {
  return number(type, [op]<class T>(Of<T>) -> Primitive {
    if (op == Op::kSum) return &fold<ReduceSum, Wrap<T>>;
    return op == Op::kMax ? &fold<ReduceMax, T> : &fold<ReduceMin, T>;
  });
}

Primitive find_instruction(Op op, Type type, unsigned uniform) {
  if (op >= Op::kSum) return find_accumulate(op, type);
  if (op == Op::kSelect) {
    return any_type(type, [uniform]<class T>(Of<T>) { return find_select<T>(uniform); });
  }
  if (op == Op::kMulAdd) {
    return floating(type, [uniform]<class T>(Of<T>) { return find_mul_add<T>(uniform); });
  }
  if (const Primitive function = find_function(op, type, uniform)) return function;
  return op < Op::kAdd ? find_unary(op, type) : find_binary(op, type, uniform);
}

constexpr Primitives kPrimitives = {find_instruction, find_start, find_finish, find_load,
                                    find_store,       find_fill,  find_stream};

}  // namespace
}  // namespace loom::fusion
