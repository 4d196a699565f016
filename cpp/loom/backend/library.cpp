// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/library.h"

#include "loom/backend/allocator.h"
#include "loom/backend/allocator_config.h"
#include "loom/backend/device_state.h"
#include "loom/backend/error.h"
#include "loom/backend/guard.h"
#include "loom/backend/hooks.h"
#include "loom/backend/host_allocator.h"
#include "loom/backend/host_release.h"
#include "loom/backend/kernel_warnings.h"
#include "loom/backend/registration.h"
#include "loom/backend/serialization.h"
#include "loom/backend/thread_setup.h"
#include "loom/device/failed_memory.h"
#include "loom/device/fault.h"
#include "loom/device/host_notice.h"
#include "loom/device/thread.h"
#include "loom/memory/device_allocator.h"

#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <cstdio>
#include <dlfcn.h>
#include <exception>
#include <stdexcept>
#include <string>

namespace loom {
namespace {

/// A HostNotifier (host_notice.h).
void tell_host() {
  release_kept_storages();
  give_kernel_warnings();
}

void register_all() {
  TORCH_CHECK(!at::isPrivateUse1HooksRegistered(),
              "loom: expected to be the only PrivateUse1 backend of the process, but another one "
              "is registered; import only one of them");
  // Objects handed to PyTorch are leaked: it uses them until the process ends.
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  const c10::impl::DeviceGuardImplRegistrar guard(kDeviceType, new GuardImpl);
  c10::SetAllocator(kDeviceType, &allocator());
  at::setHostAllocator(kDeviceType, &host_allocator());
  torch::jit::TensorBackendMetaRegistry(kDeviceType, save_backend_meta, load_backend_meta);
  register_allocator_config();
  set_thread_wrapper(run_loom_thread);
  set_error_annotator(annotate_error);
  FailedMemory::set_allocation_probe(is_allocated);
  set_fault_describer(describe_address);
  set_host_notifier(tell_host);
}

/// Empty, or why the registration failed. A static initializer may not throw: the library is often
/// loaded by `import torch`, which must survive.
std::string try_register_all() noexcept {
  try {
    if (!register_at_load(register_all)) {
      // For what loads the library by itself, and never asks whether it is registered.
      std::fprintf(stderr, "%s\n", torch_mismatch().c_str());
    }
    return {};
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

const std::string& registration_error() noexcept {
  static const std::string error = try_register_all();
  return error;
}

[[maybe_unused]] const bool registered_at_load = registration_error().empty();

}  // namespace

void check_registered() {
  // Not by c10::Error, whose members another torch may have elsewhere.
  if (!torch_mismatch().empty()) throw std::runtime_error(torch_mismatch());
  const std::string& error = registration_error();
  TORCH_CHECK(error.empty(), error);
}

void init() {
  check_registered();
  c10::register_privateuse1_backend("loom");  // the same name again is accepted
}

void make_symbols_global() {
  Dl_info here{};
  const bool found = dladdr(reinterpret_cast<const void*>(&init), &here) != 0;
  // It stays open: one more reference to a library that is never unloaded.
  const bool opened =
      found && dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr;
  TORCH_CHECK(opened, "loom: expected the dynamic loader to know libtorch_loom.so, got: ",
              found ? dlerror() : "no library at its address");
}

void shutdown() noexcept { stop_threads(); }

}  // namespace loom
