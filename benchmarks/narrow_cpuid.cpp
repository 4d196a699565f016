// SPDX-License-Identifier: BSD-3-Clause
//
// Preloaded into a process, hides from it what the processor has beyond AVX2: engines that have no
// setting for that ask the processor itself. Linux lets a process handle its CPUID instructions as
// faults where the processor can (arch_prctl(2), ARCH_SET_CPUID); threads inherit that, programs
// that are executed do not. The C library has chosen its functions by then. A process that installs
// a handler of its own for SIGSEGV ends with the next CPUID instruction. Leaves and bits: Intel's
// Software Developer's Manual, volume 2A, CPUID.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace {

constexpr long kSetCpuid = 0x1012;  // ARCH_SET_CPUID of asm/prctl.h
constexpr std::uint8_t kInstruction[] = {0x0f, 0xa2};

struct Registers {
  std::uint32_t eax, ebx, ecx, edx;
};

bool let_through(bool lets) noexcept { return ::syscall(SYS_arch_prctl, kSetCpuid, lets) == 0; }

Registers ask(std::uint32_t leaf, std::uint32_t subleaf) noexcept {
  Registers r{};
  asm volatile("cpuid"
               : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
               : "a"(leaf), "c"(subleaf));
  return r;
}

template <class... Bits>
void hide(std::uint32_t& word, Bits... bits) noexcept {
  ((word &= ~(std::uint32_t{1} << bits)), ...);
}

void narrow(std::uint32_t leaf, std::uint32_t subleaf, Registers& r) noexcept {
  if (leaf == 7 && subleaf == 0) {
    hide(r.ebx, 16, 17, 21, 26, 27, 28, 30, 31);  // AVX512 F, DQ, IFMA, PF, ER, CD, BW, VL
    hide(r.ecx, 1, 6, 11, 12, 14);                // AVX512 VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    hide(r.edx, 2, 3, 8, 22, 23, 24, 25);  // AVX512 4VNNIW, 4FMAPS, VP2INTERSECT; AMX; AVX512 FP16
  } else if (leaf == 7 && subleaf == 1) {
    hide(r.eax, 4, 5, 21, 23);  // AVX-VNNI, AVX512 BF16, AMX-FP16, AVX-IFMA
    hide(r.edx, 4, 5, 10, 19);  // AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16, AVX10
  } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {
    r = {};  // AMX's tiles, its multiplier, AVX10
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* const at = reinterpret_cast<const std::uint8_t*>(registers[REG_RIP]);
  if (info->si_code != SI_KERNEL || at[0] != kInstruction[0] || at[1] != kInstruction[1]) {
    // Another fault happens once more when this returns, and ends the process.
    std::signal(signal, SIG_DFL);
    return;
  }
  const auto leaf = static_cast<std::uint32_t>(registers[REG_RAX]);
  const auto subleaf = static_cast<std::uint32_t>(registers[REG_RCX]);
  let_through(true);
  Registers r = ask(leaf, subleaf);
  let_through(false);
  narrow(leaf, subleaf, r);
  registers[REG_RAX] = r.eax;
  registers[REG_RBX] = r.ebx;
  registers[REG_RCX] = r.ecx;
  registers[REG_RDX] = r.edx;
  registers[REG_RIP] += sizeof kInstruction;
}

[[gnu::constructor]] void start() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  if (::sigaction(SIGSEGV, &action, nullptr) != 0 || !let_through(false)) {
    std::perror("narrow_cpuid: CPUID is not narrowed");
  }
}

}  // namespace
