// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the library registers with PyTorch when it is loaded. A library that was built for another
// minor version of torch loads, but classes have other members and virtual functions other places
// there. So everything is registered through the names below, which ask for the version first and
// register nothing where it differs. Thread: the one that loads the library.

#include <c10/core/DispatchKey.h>
#include <c10/macros/Macros.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace loom {

/// Empty, or says which torch the library was built for and which one the process has.
[[nodiscard]] const std::string& torch_mismatch() noexcept;

/// Calls `registration`, unless the process has another torch. Returns whether it was called.
bool register_at_load(void (*registration)());

/// As torch::detail::TorchLibraryInit, unless the process has another torch.
class LibraryRegistration {
 public:
  LibraryRegistration(torch::Library::Kind kind, void (*registration)(torch::Library&),
                      const char* ns, std::optional<c10::DispatchKey> key, const char* file,
                      std::uint32_t line);

 private:
  std::unique_ptr<torch::Library> library_;
};

}  // namespace loom

/// TORCH_LIBRARY_IMPL for the library itself.
#define LOOM_LIBRARY_IMPL(ns, key, m) \
  LOOM_REGISTER_LIBRARY(IMPL, ns, c10::DispatchKey::key, m, C10_UID)

/// TORCH_LIBRARY_FRAGMENT for the library itself.
#define LOOM_LIBRARY_FRAGMENT(ns, m) LOOM_REGISTER_LIBRARY(FRAGMENT, ns, std::nullopt, m, C10_UID)

#define LOOM_REGISTER_LIBRARY(kind, ns, key, m, uid)                                           \
  static void C10_CONCATENATE(loom_library_init_, uid)(torch::Library&);                       \
  static const ::loom::LibraryRegistration C10_CONCATENATE(loom_library_, uid)(                \
      torch::Library::kind, &C10_CONCATENATE(loom_library_init_, uid), C10_STRINGIZE(ns), key, \
      __FILE__, __LINE__);                                                                     \
  void C10_CONCATENATE(loom_library_init_, uid)(torch::Library & m)
