// SPDX-License-Identifier: BSD-3-Clause
// Pointwise operators for which ATen has no structured form: their shape inference is here.
#include "loom/backend/registration.h"
#include "loom/ops/aten/policy/fused.h"
#include "loom/ops/aten/policy/fused_bounds.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/number_check.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/clamp_min_cpu_dispatch.h>
#include <ATen/ops/div.h>
#include <ATen/ops/hardswish_backward_native.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_native.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward_native.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/ldexp_native.h>
#include <ATen/ops/ldexp_ops.h>
#include <ATen/ops/logical_and_native.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_native.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_native.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/logical_xor_native.h>
#include <ATen/ops/logical_xor_ops.h>
#include <ATen/ops/masked_fill_native.h>
#include <ATen/ops/mish_backward_native.h>
#include <ATen/ops/nan_to_num_native.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <ATen/ops/relu_native.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/rsub_native.h>
#include <ATen/ops/where_native.h>
#include <ATen/ops/where_ops.h>

#include <optional>

namespace loom::ops {
namespace {

namespace native = at::native;

/// Results of a dtype of their own, whatever those of the inputs.
struct DtypeMeta : at::TensorIteratorBase {
  template <class... Input>
  void infer(c10::ScalarType dtype, bool safe_casting, const Input&... inputs) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(true)
        .allow_cpu_scalars(true)
        .check_all_same_dtype(false)
        .enforce_safe_casting_to_output(false)
        .add_output(maybe_get_output());
    (config.add_const_input(inputs), ...);
    const at::Tensor& given = maybe_get_output();
    if (!given.defined()) config.declare_static_dtype(dtype);
    TORCH_CHECK(!safe_casting || !given.defined() || c10::canCast(dtype, given.scalar_type()),
                "result type ", dtype, " can't be cast to the desired output type ",
                given.scalar_type());
    build(config);
  }
};

struct LogicMeta : DtypeMeta {
  void meta(const at::Tensor& self) { infer(c10::kBool, false, self); }
  void meta(const at::Tensor& self, const at::Tensor& other) {
    infer(c10::kBool, false, self, other);
  }
};

struct AbsMeta : DtypeMeta {
  void meta(const at::Tensor& self) { infer(c10::toRealValueType(self.scalar_type()), true, self); }
};

struct WhereMeta : DtypeMeta {
  void meta(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
    TORCH_CHECK(condition.scalar_type() == c10::kBool || condition.scalar_type() == c10::kByte,
                "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                condition.scalar_type());
    if (condition.scalar_type() == c10::kByte) {
      TORCH_WARN_ONCE(
          "where received a uint8 condition tensor. This behavior is deprecated and will be "
          "removed in a future version of PyTorch. Use a boolean condition instead.");
    }
    const auto dtype = at::result_type(self, other);
    const at::Tensor& given = maybe_get_output();
    TORCH_CHECK(!given.defined() || given.scalar_type() == dtype, "Expected out type to be ", dtype,
                " but got ", given.scalar_type());
    infer(dtype, false, condition, self, other);
  }
};

/// Gradients and activations that promote nothing.
struct SameDtypeMeta : at::TensorIteratorBase {
  void meta(const at::Tensor& self) { build_borrowing_unary_op(maybe_get_output(), self); }
  template <class... More>
  void meta(const at::Tensor& grad, const at::Tensor& self, const More&...) {
    build_borrowing_binary_op(maybe_get_output(), grad, self);
  }
};

struct NanToNumMeta : DtypeMeta {
  void meta(const at::Tensor& self, std::optional<double>, std::optional<double>,
            std::optional<double>) {
    const at::Tensor& given = maybe_get_output();
    TORCH_CHECK(!given.defined() || given.scalar_type() == self.scalar_type(),
                "nan_to_num: dtype of out: ", given.scalar_type(),
                " should be same as input: ", self.scalar_type());
    infer(self.scalar_type(), false, self);
  }
};

struct LdexpMeta : DtypeMeta {
  void meta(const at::Tensor& self, const at::Tensor& other) {
    infer(self.scalar_type(), false, self, other);
  }
};

template <class Op>
using Ldexp = detail::StructuredForm<Op, LdexpMeta, Elementwise<4>, native::ldexp_out>;

/// True for operands that ATen has a kernel for, which scales without leaving the range on the way.
/// It multiplies others by a power of two.
bool has_ldexp_kernel(const at::Tensor& self, const at::Tensor& other) {
  const c10::ScalarType exponents = other.scalar_type();
  return self.is_privateuseone() && self.is_floating_point() &&
         c10::isIntegralType(exponents, /*includeBool=*/false) && exponents != c10::kUInt16 &&
         exponents != c10::kUInt32 && exponents != c10::kUInt64;
}

at::Tensor ldexp(const at::Tensor& self, const at::Tensor& other) {
  if (!has_ldexp_kernel(self, other)) return native::ldexp(self, other);
  return Ldexp<at::_ops::ldexp_Tensor>::call(self, other);
}
at::Tensor& ldexp_(at::Tensor& self, const at::Tensor& other) {
  if (!has_ldexp_kernel(self, other)) return native::ldexp_(self, other);
  return Ldexp<at::_ops::ldexp_>::call(self, other);
}
at::Tensor& ldexp_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& to) {
  const bool converts = to.scalar_type() != self.scalar_type();
  if (converts || !has_ldexp_kernel(self, other)) return native::ldexp_out(self, other, to);
  return Ldexp<at::_ops::ldexp_out>::call(self, other, to);
}

template <class Op>
using NanToNum = detail::StructuredForm<
    Op, NanToNumMeta, Fused<recipe::NanToNum, Elementwise<2>>,
    static_cast<at::Tensor& (*)(const at::Tensor&, std::optional<double>, std::optional<double>,
                                std::optional<double>, at::Tensor&)>(native::nan_to_num_out)>;

at::Tensor& nan_to_num_(at::Tensor& self, std::optional<double> nan, std::optional<double> most,
                        std::optional<double> least) {
  // Nothing is written, and so elements may share memory.
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) return self;
  return NanToNum<at::_ops::nan_to_num_>::call(self, nan, most, least);
}

void check_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool,
              "masked_fill_ only supports boolean masks, but got mask with dtype ", mask.dtype());
  TORCH_CHECK(self.device() == mask.device() || mask.dim() == 0,
              "expected self and mask to be on the same device, but got mask on ", mask.device(),
              " and self on ", self.device());
  at::assert_no_partial_overlap(self, mask);
}

/// Deprecated, with a warning, but done: element after element.
bool overlaps_itself(const at::Tensor& self) {
  return at::has_internal_overlap(self) == at::MemOverlap::Yes;
}

template <class Value>
at::Tensor& launch_masked_fill(at::Tensor& self, const at::Tensor& mask, const Value& value) {
  const auto shape = at::infer_size_dimvector(self.sizes(), mask.sizes());
  TORCH_CHECK(self.sizes() == c10::IntArrayRef(shape), "output with shape ", self.sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
  if (self.numel() == 0) return self;
  const auto kernel = [](at::Tensor to, const at::Tensor& where, const Value& with) {
    native::masked_fill__cpu(to, where, with);
  };
  launch("masked_fill_", Pointwise{}, kernel, inout(self), mask, value);
  return self;
}

bool record_masked_fill(const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  if (self.dim() < mask.dim()) return false;
  FusedOperator f("masked_fill_", self.scalar_type());
  if (!f.possible()) return false;
  const auto where = f.load_as_is(mask);
  const auto with = f.number(value);
  f.store(f.where(where, f.rounded(with), f.load(self)), self);
  return f.record(self.device());
}

at::Tensor& masked_fill_scalar(at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  if (overlaps_itself(self)) [[unlikely]] {
    return call_fallback<at::Tensor&, at::Tensor&, const at::Tensor&, const at::Scalar&>(
        "aten::masked_fill_", "Scalar", self, mask, value);
  }
  check_mask(self, mask);
  check_masked_filling(self.scalar_type(), value);
  if (record_masked_fill(self, mask, value)) return self;
  return launch_masked_fill(self, mask, value);
}

at::Tensor& masked_fill_tensor(at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (overlaps_itself(self)) [[unlikely]] {
    return call_fallback<at::Tensor&, at::Tensor&, const at::Tensor&, const at::Tensor&>(
        "aten::masked_fill_", "Tensor", self, mask, value);
  }
  check_mask(self, mask);
  check_masked_filling(self.scalar_type(), 0);
  return launch_masked_fill(self, mask, value);
}

// By numbers and through the operators of Python's shifts, ATen's kernels are those of the bitwise
// operators.
at::Tensor left_shift(const at::Tensor& self, const at::Tensor& other) {
  return at::bitwise_left_shift(self, other);
}
at::Tensor left_shift_by(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_left_shift(self, native::wrapped_scalar_tensor(other));
}
at::Tensor right_shift(const at::Tensor& self, const at::Tensor& other) {
  return at::bitwise_right_shift(self, other);
}
at::Tensor right_shift_by(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_right_shift(self, native::wrapped_scalar_tensor(other));
}

at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) {
  return at::div(self, other, "floor");
}
at::Tensor& floor_divide_(at::Tensor& self, const at::Tensor& other) {
  return self.div_(other, "floor");
}
at::Tensor& floor_divide_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& to) {
  return at::div_out(to, self, other, "floor");
}

at::Tensor is_in(const at::Scalar& number, const at::Tensor& test, bool unique, bool invert) {
  return at::isin(native::wrapped_scalar_tensor(number, test.device()), test, unique, invert);
}
at::Tensor& is_in_out(const at::Scalar& number, const at::Tensor& test, bool unique, bool invert,
                      at::Tensor& to) {
  return at::isin_out(to, native::wrapped_scalar_tensor(number, test.device()), test, unique,
                      invert);
}

// Half types are rounded once, as by ATen's kernel, not by each of the operators.
at::Tensor mish_backward(const at::Tensor& grad, const at::Tensor& self) {
  const c10::ScalarType dtype = at::result_type(grad, self);
  if (!c10::isReducedFloatingType(dtype)) return native::math_mish_backward(grad, self);
  return native::math_mish_backward(grad.to(c10::kFloat), self.to(c10::kFloat)).to(dtype);
}

using Binary = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Scalar&);

at::Tensor& clamp_at_zero(const at::Tensor& self, at::Tensor& to) {
  return at::cpu::clamp_min_outf(self, 0, to);
}

at::Tensor relu(const at::Tensor& self) {
  if (find_alike(self) == nullptr) return native::relu(self);
  std::array<at::Tensor, 1> outputs{empty(self.sizes(), self.scalar_type(), self.device())};
  if (Fused<recipe::ClampMin, Floating<1>>::fuse("relu", self.scalar_type(), outputs, self,
                                                 at::Scalar(0))) {
    return std::move(outputs[0]);
  }
  probe_dtypes<&clamp_at_zero>(outputs, self);
  launch_cpu<&clamp_at_zero>("relu", Pointwise{1}, outputs, self);
  return std::move(outputs[0]);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace op = at::_ops;
  structured<LogicMeta, Fused<recipe::Logical<fusion::Op::kAnd>, Elementwise<1>>,
             op::logical_and_out, native::logical_and_out, op::logical_and>(m);
  structured<LogicMeta, Fused<recipe::Logical<fusion::Op::kOr>, Elementwise<1>>, op::logical_or_out,
             native::logical_or_out, op::logical_or>(m);
  structured<LogicMeta, Fused<recipe::Logical<fusion::Op::kXor>, Elementwise<1>>,
             op::logical_xor_out, native::logical_xor_out, op::logical_xor>(m);
  structured<LogicMeta, Fused<recipe::LogicalNot, Elementwise<1>>, op::logical_not_out,
             native::logical_not_out, op::logical_not>(m);
  structured<AbsMeta, Fused<recipe::Abs, Elementwise<1>>, op::abs_out, native::abs_out, op::abs>(m);
  structured<WhereMeta, Fused<recipe::Where, Elementwise<2>>, op::where_self_out,
             native::where_self_out, op::where_self>(m);
  structured<SameDtypeMeta, Fused<recipe::HardSwish, Elementwise<2>>, op::hardswish_out,
             native::hardswish_out, op::hardswish, op::hardswish_>(m);
  structured<SameDtypeMeta, Fused<recipe::HardSwishBackward, Elementwise<2>>,
             op::hardswish_backward_out, native::hardswish_backward_out, op::hardswish_backward>(m);
  structured<SameDtypeMeta, Fused<recipe::HardtanhBackward, Elementwise<2>>,
             op::hardtanh_backward_grad_input, native::hardtanh_backward_out,
             op::hardtanh_backward>(m);
  structured<NanToNumMeta, Fused<recipe::NanToNum, Elementwise<2>>, op::nan_to_num_out,
             native::nan_to_num_out, op::nan_to_num>(m);
  m.impl("nan_to_num_", TORCH_FN(nan_to_num_));
  m.impl("ldexp.Tensor", TORCH_FN(ldexp));
  m.impl("ldexp_", TORCH_FN(ldexp_));
  m.impl("ldexp.out", TORCH_FN(ldexp_out));
  m.impl("masked_fill_.Scalar", TORCH_FN(masked_fill_scalar));
  m.impl("masked_fill_.Tensor", TORCH_FN(masked_fill_tensor));
  // These are made of other operators.
  m.impl("isin.Scalar_Tensor", TORCH_FN(is_in));
  m.impl("isin.Scalar_Tensor_out", TORCH_FN(is_in_out));
  m.impl("relu", TORCH_FN(relu));
  m.impl("relu_", TORCH_FN(native::relu_));
  m.impl("isnan", TORCH_FN(native::isnan));
  m.impl("__lshift__.Tensor", TORCH_FN(left_shift));
  m.impl("__lshift__.Scalar", TORCH_FN(left_shift_by));
  m.impl("__rshift__.Tensor", TORCH_FN(right_shift));
  m.impl("__rshift__.Scalar", TORCH_FN(right_shift_by));
  m.impl("floor_divide", TORCH_FN(floor_divide));
  m.impl("floor_divide_.Tensor", TORCH_FN(floor_divide_));
  m.impl("floor_divide.out", TORCH_FN(floor_divide_out));
  m.impl("rsub.Tensor", TORCH_FN(static_cast<Binary*>(native::rsub)));
  m.impl("hardtanh", TORCH_FN(native::hardtanh));
  m.impl("hardtanh_", TORCH_FN(native::hardtanh_));
  m.impl("hardtanh.out", TORCH_FN(native::hardtanh_out));
  m.impl("mish_backward", TORCH_FN(mish_backward));
}

}  // namespace loom::ops
