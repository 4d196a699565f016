// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/cuda_name.h"

#include "loom/backend/device_state.h"
#include "loom/base/imports.h"
#include "loom/base/mutex.h"

#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <dlfcn.h>
#include <string>

namespace loom::cuda_name {
namespace {

constexpr const char* kNameOfType = "_ZN3c1014DeviceTypeNameB5cxx11ENS_10DeviceTypeEb";
// A constructor has two symbols: of a whole object, and of the base of a derived one.
constexpr const char* kDeviceOfString =
    "_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr const char* kBaseDeviceOfString =
    "_ZN3c106DeviceC2ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

using NameOfType = std::string (*)(c10::DeviceType, bool);
using DeviceOfString = void (*)(c10::Device*, const std::string&);

/// c10's own function. The loader's tables of exported names are not redirected.
template <class Function>
Function find(const char* symbol) noexcept {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, symbol));
}

// Set when the library is loaded, long before the first redirected call. A static local would cost
// each call a check.
const auto g_name_of_type = find<NameOfType>(kNameOfType);
const auto g_device_of_string = find<DeviceOfString>(kDeviceOfString);

// Relaxed: the flag alone changes, and nothing else is published with it. Python turns it on and
// off with the GIL held, which orders it for the threads that run Python.
std::atomic<bool> g_on{false};
// Four bytes of static thread-local storage, as in selection.h.
thread_local constinit int t_hushed __attribute__((tls_model("initial-exec"))) = 0;

std::string name_of_type(c10::DeviceType type, bool lower_case) {
  if (type == kDeviceType && t_hushed == 0 && is_on()) return lower_case ? "cuda" : "CUDA";
  return g_name_of_type(type, lower_case);
}

/// In the place of c10::Device::Device(const std::string&), called as one. c10 checks the string,
/// so that errors quote what the program wrote.
void device_of_string(c10::Device* self, const std::string& text) {
  g_device_of_string(self, text);
  if (self->is_cuda() && is_on()) *self = c10::Device(kDeviceType, self->index());
}

/// What redirect() has done so far.
struct Redirection {
  Mutex mutex{"cuda_name"};
  std::uint64_t libraries_seen LOOM_GUARDED_BY(mutex) = 0;
  std::size_t entries LOOM_GUARDED_BY(mutex) = 0;
};

Redirection& redirection() {
  static Redirection only;
  return only;
}

}  // namespace

std::size_t redirect() {
  TORCH_CHECK(
      can_redirect_imports(),
      "torch_loom.as_cuda: expected an x86-64 or AArch64 processor, on which loom knows how "
      "libraries import functions, got another one. Name the device \"loom\" instead");
  TORCH_CHECK(g_name_of_type != nullptr && g_device_of_string != nullptr,
              "torch_loom.as_cuda: expected libc10 to export the functions that give devices their "
              "names, which this version of torch does not. Name the device \"loom\" instead");
  Redirection& state = redirection();
  MutexLock lock(state.mutex);
  const std::uint64_t libraries = loaded_libraries();
  if (libraries == state.libraries_seen) return state.entries;
  const std::array redirects{
      ImportRedirect{kNameOfType, reinterpret_cast<void*>(&name_of_type)},
      ImportRedirect{kDeviceOfString, reinterpret_cast<void*>(&device_of_string)},
      ImportRedirect{kBaseDeviceOfString, reinterpret_cast<void*>(&device_of_string)}};
  // The libraries of a PyTorch for CUDA mean CUDA when they say so.
  constexpr std::array<std::string_view, 2> kSkipped{"libtorch_cuda", "libc10_cuda"};
  RedirectedImports done = redirect_imports(redirects, kSkipped);
  TORCH_CHECK(done.problem.empty(),
              "torch_loom.as_cuda: expected import tables that can be changed, but ", done.problem,
              ". Name the device \"loom\" instead");
  state.libraries_seen = libraries;
  state.entries = done.entries;
  return state.entries;
}

void set_on(bool on) noexcept { g_on.store(on, std::memory_order_relaxed); }

bool is_on() noexcept { return g_on.load(std::memory_order_relaxed); }

const char* in_messages() noexcept { return is_on() ? "CUDA" : "loom"; }

Hush::Hush() noexcept { ++t_hushed; }

Hush::~Hush() { --t_hushed; }

}  // namespace loom::cuda_name
