// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/package_runner.h"

#include "loom/backend/device_state.h"
#include "loom/backend/library.h"
#include "loom/backend/registration.h"
#include "loom/device/wait_wrapper.h"
#include "loom/ops/numbered_devices.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <dlfcn.h>
#include <memory>
#include <new>
#include <utility>

namespace loom {
namespace {

/// As in torch_loom/package.h.
constexpr std::int64_t kPackageInterface = 2;

using DeviceOperators = const char* const* (*)();
using LoadConstants = AOTIRuntimeError (*)(AOTInductorModelContainerHandle, std::int32_t);

/// The library's own name of a device, of which it uses the index.
std::string host_device(c10::DeviceIndex device) {
  return "cpu:" + std::to_string(static_cast<int>(device));
}

template <class Function>
Function function_of(void* library, const char* name) {
  void* found = dlsym(library, name);
  TORCH_CHECK(found != nullptr,
              "package: expected a library that torch-loom has compiled, got one without ", name,
              ". Compile the model again");
  return reinterpret_cast<Function>(found);
}

/// Opens a library for as long as the process lives: commands that are queued, profiles and errors
/// refer to the kernels in it, and to their names.
void* open_for_good(const std::string& path) {
  make_symbols_global();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, "package: expected a library that can be loaded, got ", path,
              ": ", dlerror());
  const auto interface = function_of<std::int64_t (*)()>(library, "loom_package_interface")();
  TORCH_CHECK(interface == kPackageInterface, "package: expected interface ", kPackageInterface,
              " of loom, got ", interface,
              ": it was compiled with another version of torch-loom. Compile the model again");
  // Before PyTorch's runtime looks them up.
  const char* const* name = function_of<DeviceOperators>(library, "loom_package_operators")();
  for (; *name != nullptr; ++name) define_with_numbered_devices(*name);
  return library;
}

std::unique_ptr<torch::inductor::AOTIModelContainerRunner> make_runner(const std::string& library,
                                                                       std::size_t models,
                                                                       const std::string& device,
                                                                       const std::string& folder,
                                                                       const bool single_threaded) {
  return std::make_unique<PackageRunner>(library, models, device, folder, single_threaded);
}

bool register_runner() noexcept {
  try {
    return register_at_load([] { torch::inductor::RegisterAOTIModelRunner("loom", &make_runner); });
  } catch (const std::bad_alloc&) {  // the loader says that it does not know the device
    return false;
  }
}

[[maybe_unused]] const bool registered = register_runner();

}  // namespace

PackageRunner::PackageRunner(const std::string& library, std::size_t models,
                             const std::string& device, const std::string& folder,
                             bool single_threaded)
    : PackageRunner(open_for_good(library), library, models,
                    resolve_device(c10::Device(device), "package"), folder, single_threaded) {}

PackageRunner::PackageRunner(void* opened, const std::string& library, std::size_t models,
                             c10::DeviceIndex device, const std::string& folder,
                             bool single_threaded)
    : AOTIModelContainerRunner(library, models, host_device(device), folder, single_threaded) {
  update_constant_buffer_func_ =
      function_of<decltype(update_constant_buffer_func_)>(opened, "loom_package_update_constants");
  update_constant_buffer_from_cpu_func_ = update_constant_buffer_func_;
  update_user_managed_constant_buffer_func_ =
      function_of<decltype(update_user_managed_constant_buffer_func_)>(
          opened, "loom_package_lend_constants");
  update_inactive_constant_buffer_func_ =
      function_of<decltype(update_inactive_constant_buffer_func_)>(
          opened, "loom_package_update_inactive_constants");
  const auto load = function_of<LoadConstants>(opened, "loom_package_load_constants");
  if (load(container_handle_, device) == AOTI_RUNTIME_SUCCESS) return;
  const char* why = nullptr;
  if (get_last_error_func_ != nullptr) get_last_error_func_(&why);
  TORCH_CHECK(false,
              "package: expected constants that can be put on loom:", static_cast<int>(device),
              ", got: ", why != nullptr ? why : "an error");
}

std::vector<at::Tensor> PackageRunner::run_impl(std::vector<AtenTensorHandle>& inputs,
                                                void* stream) {
  struct Run {
    PackageRunner* runner;
    std::vector<AtenTensorHandle>* inputs;
    void* stream;
    std::vector<at::Tensor> results;
  } run{this, &inputs, stream, {}};
  // It waits for a model that is free, while the thread that has it may wait for the device.
  call_in_wait_wrapper(
      [](void* context) {
        Run& each = *static_cast<Run*>(context);
        each.results = each.runner->AOTIModelContainerRunner::run_impl(*each.inputs, each.stream);
      },
      &run);
  return std::move(run.results);
}

}  // namespace loom
