// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The arguments of one operator call, seen from the CPU: device tensors replaced by CPU tensors
// over the same memory, devices by cpu, generators by seeded CPU ones; and the way back for the
// results. Thread: an object belongs to one call.

#include <ATen/core/QuantizerBase.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace loom::ops {

class CpuArguments {
 public:
  /// Looks at the arguments on top of `stack`. Throws: PyTorch's error for operands on different
  /// devices.
  CpuArguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  ~CpuArguments();
  CpuArguments(const CpuArguments&) = delete;
  CpuArguments& operator=(const CpuArguments&) = delete;

  /// Every loom device that an operand lives on, and that of the results.
  [[nodiscard]] const std::set<c10::DeviceIndex>& devices() const noexcept { return devices_; }
  [[nodiscard]] c10::Device output_device() const noexcept { return output_device_; }

  /// Replaces the arguments on `stack`. May queue copies: who reads the arguments waits first.
  void convert(torch::jit::Stack& stack);
  /// When the operands' streams have been waited for.
  /// Throws: why the values of an operand failed, if they did (failed_memory.h).
  void check_values() const;
  /// When the operator has run: what it was to write all over (out=) has values.
  void note_replaced() const;
  /// Carries new sizes, strides and storages of the CPU tensors over to the device tensors.
  void write_back();
  /// Replaces the operator's results on `stack` by device tensors.
  void convert_results(torch::jit::Stack& stack);

 private:
  struct TensorPair {
    at::Tensor device, cpu;
    at::QuantizerPtr quantizer = {};  // that `cpu` was given
  };

  void look_at(const c10::IValue& value);
  void look_at(const at::Tensor& tensor);
  void check_device(const c10::IValue& value, std::size_t argument) const;

  c10::IValue to_cpu(const c10::IValue& value, const c10::Argument& argument);
  at::Tensor to_cpu(const at::Tensor& tensor);
  at::Tensor remember(const at::Tensor& device, at::Tensor cpu);
  c10::Storage cpu_storage(const c10::Storage& storage);
  at::Generator cpu_generator(const std::optional<at::Generator>& generator);
  void seed_default_generator();

  c10::IValue to_device(const c10::IValue& value);
  at::Tensor to_device(const at::Tensor& tensor);
  at::Tensor on_device(c10::Storage storage, const at::Tensor& cpu, std::int64_t storage_offset);
  at::QuantizerPtr device_quantizer(const at::Tensor& cpu);
  bool is_argument(const at::Tensor& tensor) const;
  std::optional<c10::Storage> device_storage(const at::Tensor& tensor);

  const c10::OperatorHandle& op_;
  c10::Device output_device_;
  std::set<c10::DeviceIndex> devices_;
  std::vector<TensorPair> tensors_;
  std::vector<at::Tensor> outputs_;         // the device tensors of out= arguments
  std::vector<at::Tensor> host_arguments_;  // given and, where an operator returns one, returned
  std::unordered_map<const c10::StorageImpl*, c10::Storage> cpu_storages_;     // by device storage
  std::unordered_map<const c10::StorageImpl*, c10::Storage> device_storages_;  // by CPU storage
  // The default CPU generator's state to put back, for operators that draw from it unasked.
  at::Tensor saved_generator_state_;
};

}  // namespace loom::ops
