// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/meta/call_key.h"

#include "loom/base/ceil_div.h"
#include "loom/base/hash.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <bit>
#include <cstring>
#include <string_view>

namespace loom::ops {
namespace {

constexpr std::size_t kMostWords = 2048;

/// What inferences ask for beside the arguments.
std::uint64_t settings() {
  const at::Context& context = at::globalContext();
  const auto bit = [](bool value, int place) { return static_cast<std::uint64_t>(value) << place; };
  return bit(context.deterministicAlgorithms(), 0) | bit(context.userEnabledMkldnn(), 1) |
         bit(c10::GradMode::is_enabled(), 2) | bit(c10::InferenceMode::is_enabled(), 3) |
         static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype()) << 8;
}

bool is_plain(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return tensor.layout() == c10::kStrided && !impl.is_python_dispatch() &&
         !impl.has_symbolic_sizes_strides() && !tensor.is_quantized() && !tensor.is_nested();
}

}  // namespace

std::optional<CallKey> CallKey::of(const c10::OperatorHandle& op,
                                   c10::ArrayRef<c10::IValue> arguments) {
  const at::Context& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicAlgorithmsWarnOnly()) {
    return std::nullopt;
  }
  CallKey key;
  key.words_.push_back(std::bit_cast<std::uintptr_t>(&op.operator_name()));  // lives as long as op
  key.words_.push_back(settings());
  for (const c10::IValue& argument : arguments) {
    if (!key.add(argument) || key.words_.size() > kMostWords) return std::nullopt;
  }
  key.finish();
  return key;
}

void CallKey::begin(Kind kind, std::uint64_t detail) {
  words_.push_back(static_cast<std::uint64_t>(kind) | detail << 8);
}

bool CallKey::add(const c10::IValue& value) {
  if (value.isTensor()) return add(value.toTensor());
  if (value.isNone()) {
    begin(Kind::kNone);
  } else if (value.isInt()) {
    begin(Kind::kInt);
    words_.push_back(static_cast<std::uint64_t>(value.toInt()));
  } else if (value.isBool()) {
    begin(Kind::kBool, value.toBool() ? 1 : 0);
  } else if (value.isDouble()) {
    begin(Kind::kDouble);
    words_.push_back(std::bit_cast<std::uint64_t>(value.toDouble()));
  } else if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    begin(Kind::kComplex);
    add_bytes(&number, sizeof number);
  } else if (value.isString()) {
    const std::string_view text = value.toStringView();
    begin(Kind::kString, text.size());
    add_bytes(text.data(), text.size());
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    begin(Kind::kList, list.size());
    for (const c10::IValue& element : list) {
      if (!add(element) || words_.size() > kMostWords) return false;
    }
  } else {
    return false;
  }
  return true;
}

bool CallKey::add(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    begin(Kind::kUndefined);
    return true;
  }
  if (!is_plain(tensor)) return false;
  const bool is_number = !tensor.is_privateuseone();
  const std::uint64_t bits[] = {tensor.is_conj(), tensor.is_neg(), tensor.requires_grad(),
                                tensor.unsafeGetTensorImpl()->is_wrapped_number(), is_number};
  std::uint64_t detail = static_cast<std::uint64_t>(tensor.scalar_type());
  for (std::size_t i = 0; i < std::size(bits); ++i) detail |= bits[i] << (8 + i);
  begin(Kind::kTensor, detail | static_cast<std::uint64_t>(tensor.dim()) << 16);
  for (const std::int64_t size : tensor.sizes()) words_.push_back(static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : tensor.strides()) {
    words_.push_back(static_cast<std::uint64_t>(stride));
  }
  return !is_number || add_number(tensor);
}

// An inference is given numbers on the host as they are, and may look at them.
bool CallKey::add_number(const at::Tensor& number) {
  if (!number.is_cpu() || number.dim() != 0) return false;
  add_bytes(number.const_data_ptr(), number.element_size());
  return true;
}

void CallKey::add_bytes(const void* bytes, std::size_t count) {
  const std::size_t first = words_.size(), size = sizeof(std::uint64_t);
  words_.resize(first + ceil_div(count, size), 0);
  if (count > 0) std::memcpy(&words_[first], bytes, count);
}

void CallKey::finish() {
  std::uint64_t hash = words_.size();
  for (const std::uint64_t word : words_) hash = mixed(hash, word);
  hash_ = hash;
}

}  // namespace loom::ops
