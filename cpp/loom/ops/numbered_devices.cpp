// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/numbered_devices.h"

#include "loom/base/mutex.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace loom {
namespace {

constexpr std::string_view kPrefix = "loom_devices_";

c10::OperatorName parsed(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

/// What takes the place of a device, or of an optional one.
std::optional<c10::TypePtr> number_type(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.real_type();
  if (type->kind() == c10::TypeKind::DeviceObjType) return c10::IntType::get();
  const auto* optional = type->castRaw<c10::OptionalType>();
  if (optional == nullptr) return std::nullopt;
  if (optional->getElementType()->kind() != c10::TypeKind::DeviceObjType) return std::nullopt;
  return c10::OptionalType::create(c10::IntType::get());
}

c10::Device numbered_device(std::int64_t number) {
  if (number < 0) return c10::Device(static_cast<c10::DeviceType>(-1 - number));
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(number));
}

c10::FunctionSchema with_numbers(const c10::FunctionSchema& schema) {
  std::vector<c10::Argument> arguments;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto type = number_type(argument);
    arguments.push_back(type ? argument.cloneWithType(*type) : argument);
  }
  return schema.cloneWithArguments(std::move(arguments))
      .cloneWithName(std::string(kPrefix) + schema.name(), schema.overload_name());
}

void call_with_devices(const c10::OperatorHandle& numbered, c10::Stack* stack) {
  const c10::OperatorName& name = numbered.operator_name();
  const c10::OperatorHandle original = c10::Dispatcher::singleton().findSchemaOrThrow(
      name.name.c_str() + kPrefix.size(), name.overload_name.c_str());
  const auto& arguments = original.schema().arguments();
  c10::IValue* values = stack->data() + (stack->size() - arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!number_type(arguments[i]) || !values[i].isInt()) continue;
    values[i] = numbered_device(values[i].toInt());
  }
  original.callBoxed(stack);
}

/// The operators that are defined here, by their names.
class NumberedOperators {
 public:
  void define(c10::FunctionSchema schema, const std::string& original) {
    auto& dispatcher = c10::Dispatcher::singleton();
    const c10::OperatorName numbered = schema.operator_name();
    const std::string text = c10::toString(schema);
    const MutexLock lock(mutex_);
    const auto known = registered_.find(numbered);
    if (known != registered_.end()) {
      TORCH_CHECK(known->second.schema == text, "package: expected the operator ", original,
                  " with the arguments that it had in this process before, since packages call it "
                  "with them, got ",
                  text, " instead of ", known->second.schema,
                  ". Give it another name, or use another process");
      return;
    }
    auto definition = dispatcher.registerDef(std::move(schema), kPlace);
    auto kernel =
        dispatcher.registerImpl(numbered, c10::DispatchKey::CompositeImplicitAutograd,
                                c10::KernelFunction::makeFromBoxedFunction<&call_with_devices>(),
                                std::nullopt, nullptr, kPlace);
    registered_.emplace(numbered, Registration{text, std::move(definition), std::move(kernel)});
  }

 private:
  /// An operator for as long as both live, which is for ever: packages keep handles of it.
  struct Registration {
    std::string schema;
    c10::RegistrationHandleRAII definition;
    c10::RegistrationHandleRAII kernel;
  };
  static constexpr const char* kPlace = "loom/ops/numbered_devices.cpp";

  Mutex mutex_;  // taken before the dispatcher's
  std::unordered_map<c10::OperatorName, Registration> registered_ LOOM_GUARDED_BY(mutex_);
};

}  // namespace

std::string define_with_numbered_devices(const std::string& name) {
  static auto& operators = *new NumberedOperators;  // never destroyed, as kernels may run at exit
  const c10::OperatorName original = parsed(name);
  const auto found = c10::Dispatcher::singleton().findSchema(original);
  TORCH_CHECK(found, "package: expected an operator ", name,
              ", which this process does not have. Load the library that defines it with "
              "TORCH_LIBRARY, or the Python module, before the package");
  c10::FunctionSchema schema = with_numbers(found->schema());
  std::string result = c10::toString(schema.operator_name());
  operators.define(std::move(schema), name);
  return result;
}

}  // namespace loom
