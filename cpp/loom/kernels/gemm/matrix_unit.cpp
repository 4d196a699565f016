// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/gemm/matrix_unit.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace loom::kernels::gemm {
namespace {

// Linux wants to be asked, once for all threads of a process, before tiles are used.
bool is_permitted() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kGetPermitted = 0x1022, kRequest = 0x1023, kTileData = 18;
  const auto permitted = [] {
    unsigned long states = 0;
    return syscall(SYS_arch_prctl, kGetPermitted, &states) == 0 && (states >> kTileData & 1) != 0;
  };
  return permitted() || (syscall(SYS_arch_prctl, kRequest, kTileData) == 0 && permitted());
#else
  return false;
#endif
}

const char* onednn_isa() noexcept {
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

}  // namespace

// Names of instruction sets that have the unit say so (avx512_core_amx, avx10_1_512_amx_fp16);
// oneDNN takes no notice of case, nor of what is no name of one.
bool allows_matrix_unit(SimdLevel level, const char* onednn_isa) noexcept {
  if (level < SimdLevel::kAmx) return false;
  std::string isa(onednn_isa != nullptr ? onednn_isa : "");
  std::transform(isa.begin(), isa.end(), isa.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const bool names_one = isa.starts_with("sse") || isa.starts_with("avx");
  return !names_one || isa.find("amx") != std::string::npos;
}

bool bfloat16_is_far_faster() noexcept {
  static const bool answer = allows_matrix_unit(simd_level(), onednn_isa()) && is_permitted();
  return answer;
}

}  // namespace loom::kernels::gemm
