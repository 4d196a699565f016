// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Recipes of integer division by numbers that are known when the operator is called and are not
// zero. Others must look for zeros while they run, and stay ATen's kernels.
//
// Quotients come from floating point, exactly: a quotient of n-bit numbers that is no integer is
// further from the next one than 2^-n of itself, which is more than the rounding of a type with
// more than n bits. For 64 bits the first quotient is nearly right, and what it leaves is small.
// Thread: any.

#include "loom/fusion/vector_math.h"
#include "loom/ops/aten/policy/fused.h"

#include <ATen/ops/_local_scalar_dense_native.h>

#include <cstdlib>

namespace loom::ops::recipe {

class IntegerDivision {
 public:
  /// Gives up unless `other` is such a number.
  IntegerDivision(FusedOperator& f, const Tensor& self, const Tensor& other) : f_(f) {
    const bool possible = !f.floating() && !f.mask() && !self.is_cpu() && is_known(f, other);
    if (!possible) f.give_up();
    a_ = f.load(self);
    b_ = f.possible() ? f.number(at::native::_local_scalar_dense_cpu(other)) : a_;
    if (!f.possible()) return;
    negative_ = at::native::_local_scalar_dense_cpu(other).to<std::int64_t>() < 0;
    type_ = fusion::size_of(f.common()) < 4 ? Type::kFloat : Type::kDouble;
    divisor_ = f.to(type_, b_);
    quotient_ = floor_quotient(a_);
    if (f.type() == Type::kInt64) quotient_ = f.add(quotient_, floor_quotient(remainder()));
  }

  /// Rounded down.
  [[nodiscard]] Node quotient() const { return quotient_; }
  /// With the sign of the divisor.
  [[nodiscard]] Node remainder() const { return f_.sub(a_, f_.mul(quotient_, b_)); }

  /// Quotients that are rounded to zero instead are larger by one where the signs differ and
  /// something is left; true there.
  [[nodiscard]] Node is_above() const {
    const Node zero = f_.number(Scalar(0));
    const Node differ = f_.apply(negative_ ? Op::kGt : Op::kLt, a_, zero);
    return f_.apply(Op::kAnd, differ, f_.apply(Op::kNe, remainder(), zero));
  }
  [[nodiscard]] Node truncated_quotient() const {
    return f_.where(is_above(), f_.add(quotient_, f_.number(Scalar(1))), quotient_);
  }
  /// With the sign of the dividend.
  [[nodiscard]] Node truncated_remainder() const {
    return f_.where(is_above(), f_.sub(remainder(), b_), remainder());
  }

 private:
  static bool is_known(const FusedOperator& f, const Tensor& other) {
    if (!other.is_cpu() || other.dim() != 0) return false;
    const Scalar number = at::native::_local_scalar_dense_cpu(other);
    if (!number.isIntegral(/*includeBool=*/false)) return false;
    const auto value = number.to<std::int64_t>();
    if (f.type() != Type::kInt64) return value != 0;
    // Without instructions that convert and multiply vectors of 64-bit integers (AVX512DQ) all this
    // takes several times as long as divisions one by one.
    if (fusion::vector_level() < SimdLevel::kAvx512) return false;
    // The steps for 64 bits are exact within these bounds.
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;
    return value < kLargest && value > -kLargest && std::abs(value) > 1;
  }

  [[nodiscard]] Node floor_quotient(Node a) const {
    const Node exact = f_.div(f_.to(type_, a), divisor_);
    return f_.to(f_.type(), f_.apply(Op::kFloor, exact));
  }

  FusedOperator& f_;
  Type type_ = Type::kDouble;
  bool negative_ = false;
  Node a_{}, b_{}, divisor_{}, quotient_{};
};

/// Whether all elements are one.
inline bool is_single(const Tensor& tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) != 1 && tensor.stride(d) != 0) return false;
  }
  return true;
}

struct DivMode {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other,
                   const std::optional<std::string_view>& mode) {
    if (!f.floating()) return emit_integer(f, to, self, other, mode);
    if (mode && *mode != "trunc") return f.give_up();  // rounding down is more than a floor
    const Node a = f.load(self);
    const Node quotient = f.div(a, f.load_factor(other));
    if (!mode) return f.store(quotient, to);
    // Beside a single number the quotient keeps the precision of the computation.
    f.store(f.apply(Op::kTrunc, is_single(other) ? quotient : f.rounded(quotient)), to);
  }

 private:
  static void emit_integer(FusedOperator& f, const Tensor& to, const Tensor& self,
                           const Tensor& other, const std::optional<std::string_view>& mode) {
    if (!mode) return f.give_up();
    const IntegerDivision division(f, self, other);
    if (!f.possible()) return;
    f.store(*mode == "floor" ? division.quotient() : division.truncated_quotient(), to);
  }
};

/// The remainder has the sign of the divisor.
struct Remainder {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    if (f.floating()) return emit_floating(f, to, self, other);
    const IntegerDivision division(f, self, other);
    if (f.possible()) f.store(division.remainder(), to);
  }

 private:
  static void emit_floating(FusedOperator& f, const Tensor& to, const Tensor& self,
                            const Tensor& other) {
    if (fusion::size_of(f.common()) < 4) return f.give_up();
    const Node a = f.load_rounded(self), b = f.load_rounded(other), zero = f.number(0.0);
    const Node left = f.apply(Op::kFmod, a, b);
    const Node differ = f.apply(Op::kXor, f.apply(Op::kLt, b, zero), f.apply(Op::kLt, left, zero));
    const Node moves = f.apply(Op::kAnd, f.apply(Op::kNe, left, zero), differ);
    f.store(f.where(moves, f.add(left, b), left), to);
  }
};

/// The remainder has the sign of the dividend.
struct Fmod {
  static void emit(FusedOperator& f, const Tensor& to, const Tensor& self, const Tensor& other) {
    if (f.floating()) return BinaryFloat<Op::kFmod>::emit(f, to, self, other);
    const IntegerDivision division(f, self, other);
    if (f.possible()) f.store(division.truncated_remainder(), to);
  }
};

}  // namespace loom::ops::recipe
