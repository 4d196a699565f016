// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs graphs that were compiled ahead of time for loom (torch._inductor.aoti_compile_and_package):
// what PyTorch's package loader makes for packages of this device, in Python and in C++.
// PyTorch's runtime in such a library knows no loom. It is told of the cpu, whose index is then the
// device's, and has nothing to place there: constants are copied to the device by functions that
// the library brings along (python/torch_loom/include/torch_loom/package.h).
// A run takes the current stream of the package's device. Thread: any, also several at once; those
// that find no model free wait for one.

#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <cstddef>
#include <string>
#include <vector>

namespace loom {

class PackageRunner final : public torch::inductor::AOTIModelContainerRunner {
 public:
  /// Loads a library with a number of models, which as many threads can run at once.
  /// `device` is "loom" (the current one) or "loom:<index>".
  /// Defines operators that take numbers for devices, where the library calls such ones
  /// (loom/ops/numbered_devices.h).
  /// Throws: c10::Error when there is no such device, when the library was not made for this
  /// version of loom, or when an operator that takes devices is not there; what the dynamic loader
  /// says.
  PackageRunner(const std::string& library, std::size_t models, const std::string& device,
                const std::string& folder, bool single_threaded);

 private:
  PackageRunner(void* opened, const std::string& library, std::size_t models,
                c10::DeviceIndex device, const std::string& folder, bool single_threaded);

  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& inputs, void* stream) override;
};

}  // namespace loom
