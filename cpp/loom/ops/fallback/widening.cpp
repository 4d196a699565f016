// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/widening.h"

#include "loom/backend/registration.h"
#include "loom/ops/launch/borrowed_kernel.h"
#include "loom/ops/launch/tensor_lists.h"

#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <string>
#include <vector>

namespace loom::ops {
namespace {

bool is_dtype(const c10::Argument& argument) {
  const auto optional = argument.real_type()->cast<c10::OptionalType>();
  const c10::TypePtr type = optional ? optional->getElementType() : argument.real_type();
  return type->kind() == c10::TypeKind::ScalarTypeType;
}

/// One dtype and the wider one, with the real ones of complex ones and the other way round.
struct Pair {
  c10::ScalarType narrow, wide;

  [[nodiscard]] c10::ScalarType widened(c10::ScalarType dtype) const {
    return mapped(dtype, narrow, wide);
  }
  [[nodiscard]] c10::ScalarType narrowed(c10::ScalarType dtype) const {
    return mapped(dtype, wide, narrow);
  }

 private:
  static c10::ScalarType mapped(c10::ScalarType dtype, c10::ScalarType from, c10::ScalarType to) {
    if (dtype == from) return to;
    if (c10::isComplexType(from) && dtype == c10::toRealValueType(from)) {
      return c10::toRealValueType(to);
    }
    if (c10::isFloatingType(from) && dtype == c10::toComplexType(from)) {
      return c10::toComplexType(to);
    }
    return dtype;
  }
};

/// What the arguments say: which dtype is to be widened, and that of the result.
class Call {
 public:
  Call(const Widening& widening, const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : widening_(widening) {
    const auto& schema = op.schema().arguments();
    const std::size_t first = stack.size() - schema.size();
    for (std::size_t i = 0; i < schema.size(); ++i) {
      const c10::IValue& value = stack[first + i];
      if (value.isInt() && is_dtype(schema[i])) {
        wanted_ = static_cast<c10::ScalarType>(value.toInt());
        note(*wanted_);
      }
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        note(tensor.scalar_type());
        if (!schema[i].is_out())
          promoted_ = at::native::update_result_type_state(tensor, promoted_);
      });
    }
  }

  [[nodiscard]] bool is_widened() const noexcept { return narrow_ && !several_; }
  [[nodiscard]] Pair pair() const { return {*narrow_, widening_.to}; }
  /// Whether results that have the wider dtype were to have the narrow one.
  [[nodiscard]] bool converts_back() const {
    const c10::ScalarType dtype = wanted_ ? *wanted_ : at::native::result_type(promoted_);
    return widening_.converts_back && dtype == *narrow_;
  }

 private:
  void note(c10::ScalarType dtype) {
    if (!widening_.from.contains(dtype)) return;
    several_ = several_ || (narrow_ && *narrow_ != dtype);
    narrow_ = dtype;
  }

  const Widening& widening_;
  std::optional<c10::ScalarType> narrow_, wanted_;
  at::native::ResultTypeState promoted_;
  bool several_ = false;
};

/// A tensor that the operator writes, and what is written in its place.
struct Written {
  at::Tensor given, wide;
};

/// The given tensor gets the values, and their sizes if it is an out= of others.
void hand_over(const Written& written) {
  if (written.given.sizes() != written.wide.sizes()) written.given.resize_(written.wide.sizes());
  written.given.copy_(written.wide);
}

}  // namespace

bool try_widen(const Widening& widening, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Call call(widening, op, *stack);
  if (!call.is_widened()) return false;
  const Pair pair = call.pair();
  const auto& schema = op.schema().arguments();
  const std::size_t first = stack->size() - schema.size();
  std::vector<Written> written;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const bool writes = schema[i].alias_info() != nullptr && schema[i].alias_info()->isWrite();
    if (value.isInt() && is_dtype(schema[i])) {
      value = static_cast<std::int64_t>(pair.widened(static_cast<c10::ScalarType>(value.toInt())));
      continue;
    }
    value = map_tensors(value, [&](const at::Tensor& tensor) -> at::Tensor {
      if (!tensor.defined()) return tensor;
      // Beside a complex dtype its real one is an operand of its own, unless it is a result.
      const c10::ScalarType dtype = tensor.scalar_type();
      const c10::ScalarType wide = writes || dtype == pair.narrow ? pair.widened(dtype) : dtype;
      if (wide == dtype) return tensor;
      if (!writes) return tensor.to(wide);
      written.push_back({tensor, schema[i].is_out()
                                     ? at::empty(tensor.sizes(), tensor.options().dtype(wide))
                                     : tensor.to(wide)});
      return written.back().wide;
    });
  }
  op.callBoxed(stack);
  for (const Written& each : written) hand_over(each);
  for (std::size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    (*stack)[i] = map_tensors((*stack)[i], [&](const at::Tensor& tensor) -> at::Tensor {
      if (!tensor.defined()) return tensor;  // a gradient that nobody wants
      for (const Written& each : written) {
        if (tensor.is_same(each.wide)) return each.given;
      }
      return call.converts_back() ? tensor.to(pair.narrowed(tensor.scalar_type())) : tensor;
    });
  }
  return true;
}

namespace {

/// Fourier transforms are composites that ask for the device before they convert: here they are
/// differentiated in the wider dtype.
void fourier_transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static constexpr Widening kHalfToFloat{"", {c10::kHalf}, c10::kFloat};
  if (!try_widen(kHalfToFloat, op, stack))
    borrowed_kernel<c10::DispatchKey::CompositeImplicitAutograd>(op, stack);
}

void register_fourier_transforms(torch::Library& library) {
  for (const std::string kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
    for (const std::string dims : {"", "2", "n"}) {
      for (const std::string form : {"", ".out"}) {
        library.impl(("fft_" + kind + dims + form).c_str(),
                     torch::CppFunction::makeFromBoxedFunction<&fourier_transform>());
      }
    }
  }
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, library) { register_fourier_transforms(library); }
LOOM_LIBRARY_IMPL(aten, AutogradPrivateUse1, library) { register_fourier_transforms(library); }

}  // namespace loom::ops
