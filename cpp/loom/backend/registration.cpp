// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/registration.h"

#include <torch/headeronly/version.h>

#include <cstdint>
#include <string>

// Of libtorch_cpu, for the stable interface of AOTInductor. Weak: torch before 2.4 has none.
extern "C" [[gnu::weak]] std::uint64_t aoti_torch_abi_version();

namespace loom {
namespace {

constexpr std::uint64_t part(std::uint64_t abi_version, int byte) {
  return abi_version >> (8 * byte) & 0xff;
}

constexpr int kMajor = 7;
constexpr int kMinor = 6;
constexpr int kPatch = 5;

std::string minor_of(std::uint64_t abi_version) {
  return std::to_string(part(abi_version, kMajor)) + "." +
         std::to_string(part(abi_version, kMinor));
}

std::string compare_versions() {
  constexpr std::uint64_t kBuiltFor = TORCH_ABI_VERSION;
  const std::uint64_t found = aoti_torch_abi_version != nullptr ? aoti_torch_abi_version() : 0;
  if (part(found, kMajor) == part(kBuiltFor, kMajor) &&
      part(found, kMinor) == part(kBuiltFor, kMinor)) {
    return {};
  }
  const std::string wanted = minor_of(kBuiltFor);
  std::string text = "torch-loom: expected torch " + wanted + ".*, which it was built for, got ";
  text += found == 0 ? "an older torch"
                     : "torch " + minor_of(found) + "." + std::to_string(part(found, kPatch));
  text += "; nothing is registered. Install that torch (pip install 'torch==" + wanted + ".*')";
  if (found != 0) text += ", or a torch-loom that was built for torch " + minor_of(found);
  return text;
}

}  // namespace

const std::string& torch_mismatch() noexcept {
  // Leaked: static objects of other files may ask for it, and none is destroyed after it.
  static const auto* const mismatch = new std::string(compare_versions());
  return *mismatch;
}

bool register_at_load(void (*registration)()) {
  if (!torch_mismatch().empty()) return false;
  registration();
  return true;
}

LibraryRegistration::LibraryRegistration(torch::Library::Kind kind,
                                         void (*registration)(torch::Library&), const char* ns,
                                         std::optional<c10::DispatchKey> key, const char* file,
                                         std::uint32_t line) {
  if (!torch_mismatch().empty()) return;
  library_ = std::make_unique<torch::Library>(kind, ns, key, file, line);
  registration(*library_);
}

}  // namespace loom
