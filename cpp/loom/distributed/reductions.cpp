// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/reductions.h"

#include <ATen/ops/view_as_real.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <optional>

namespace loom::distributed {
namespace {

using c10d::ReduceOp;
using collectives::Combination;
using collectives::Element;
using collectives::Reduction;

std::optional<Element> element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
    case c10::ScalarType::ComplexFloat:
      return Element::kFloat32;
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexDouble:
      return Element::kFloat64;
    case c10::ScalarType::Half:
    case c10::ScalarType::ComplexHalf:
      return Element::kFloat16;
    case c10::ScalarType::BFloat16:
      return Element::kBFloat16;
    case c10::ScalarType::Char:
      return Element::kInt8;
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return Element::kUInt8;
    case c10::ScalarType::Short:
      return Element::kInt16;
    case c10::ScalarType::UInt16:
      return Element::kUInt16;
    case c10::ScalarType::Int:
      return Element::kInt32;
    case c10::ScalarType::UInt32:
      return Element::kUInt32;
    case c10::ScalarType::Long:
      return Element::kInt64;
    case c10::ScalarType::UInt64:
      return Element::kUInt64;
    default:
      return std::nullopt;
  }
}

const char* name_of(ReduceOp::RedOpType reduction) {
  switch (reduction) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "an unknown reduction";
  }
}

Reduction reduction_of(ReduceOp::RedOpType reduction) {
  switch (reduction) {
    case ReduceOp::AVG:
      return Reduction::kAverage;
    case ReduceOp::PRODUCT:
      return Reduction::kProduct;
    case ReduceOp::MIN:
      return Reduction::kMin;
    case ReduceOp::MAX:
      return Reduction::kMax;
    case ReduceOp::BAND:
      return Reduction::kAnd;
    case ReduceOp::BOR:
      return Reduction::kOr;
    case ReduceOp::BXOR:
      return Reduction::kXor;
    case ReduceOp::PREMUL_SUM:
      return Reduction::kScaledSum;
    default:
      return Reduction::kSum;
  }
}

/// Bools are bytes that are 0 or 1.
Reduction reduction_of_bools(ReduceOp::RedOpType reduction) {
  switch (reduction) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR:
      return Reduction::kOr;
    case ReduceOp::BXOR:
      return Reduction::kXor;
    default:
      return Reduction::kAnd;
  }
}

double factor_of(const ReduceOp& reduction) {
  const auto* const supplement =
      dynamic_cast<const c10d::PreMulSumSupplement*>(reduction.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "PREMUL_SUM: expected a factor, got none");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

}  // namespace

Combination combination_of(const char* name, const ReduceOp& reduction, c10::ScalarType dtype) {
  const ReduceOp::RedOpType kind = reduction.op_;
  const std::optional<Element> element = element_of(dtype);
  TORCH_CHECK_TYPE(element, name, ": expected a dtype that can be reduced, got ", dtype);
  const bool is_bits = kind == ReduceOp::BAND || kind == ReduceOp::BOR || kind == ReduceOp::BXOR;
  const bool is_sum =
      kind == ReduceOp::SUM || kind == ReduceOp::AVG || kind == ReduceOp::PREMUL_SUM;
  TORCH_CHECK_VALUE(kind < ReduceOp::UNUSED, name, ": expected a reduction, got ", name_of(kind));
  TORCH_CHECK_VALUE(!is_bits || c10::isIntegralType(dtype, /*includeBool=*/true), name,
                    ": expected integers or bool for ", name_of(kind), ", got ", dtype);
  TORCH_CHECK_VALUE(is_sum || !c10::isComplexType(dtype), name,
                    ": expected SUM, AVG or PREMUL_SUM of complex numbers, got ", name_of(kind));
  if (dtype == c10::ScalarType::Bool) {
    TORCH_CHECK_VALUE(kind != ReduceOp::AVG && kind != ReduceOp::PREMUL_SUM, name,
                      ": expected another reduction of bool, got ", name_of(kind));
    return {*element, reduction_of_bools(kind)};
  }
  Combination combination{*element, reduction_of(kind)};
  if (kind == ReduceOp::PREMUL_SUM) {
    combination.factor = factor_of(reduction);
    TORCH_CHECK_VALUE(!c10::isIntegralType(dtype, /*includeBool=*/false) ||
                          combination.factor == std::trunc(combination.factor),
                      name, ": expected a whole factor for PREMUL_SUM of ", dtype, ", got ",
                      combination.factor);
  }
  return combination;
}

at::Tensor as_elements(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.is_conj() ? tensor.resolve_conj() : tensor)
                             : tensor;
}

}  // namespace loom::distributed
