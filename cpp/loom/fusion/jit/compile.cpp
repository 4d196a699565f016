// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/jit/compile.h"

#include "loom/base/ceil_div.h"
#include "loom/base/options.h"
#include "loom/fusion/jit/code.h"
#include "loom/fusion/jit/expand.h"
#include "loom/fusion/jit/program.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace loom::fusion {
namespace jit {
namespace {

class JitKernel final : public Kernel {
 public:
  JitKernel(Code code, std::size_t scratch_per_column, bool aligned)
      : code_(std::move(code)), scratch_per_column_(scratch_per_column), aligned_(aligned) {}

  void run(const Arguments& arguments) const noexcept override {
    if (arguments.rows <= 0) return;
    reinterpret_cast<void (*)(const Arguments*)>(const_cast<void*>(code_.entry()))(&arguments);
  }

  [[nodiscard]] std::size_t scratch_bytes(std::int64_t columns) const noexcept override {
    constexpr auto kLanes = static_cast<std::size_t>(kReductionLanes);
    const std::size_t lanes = round_up(static_cast<std::size_t>(columns), kLanes);
    return (lanes + (aligned_ ? 0 : kLanes)) * scratch_per_column_;
  }

 private:
  const Code code_;
  const std::size_t scratch_per_column_;
  const bool aligned_;
};

/// Whether the functions that the body needs are there.
bool has_functions(SimdLevel level, const Body& body, const Plan& plan) {
  if (plan.calls && level != vector_level()) return false;
  for (std::size_t i = 0; i < body.instructions.size(); ++i) {
    const auto [op, type, a, b, c] = body.instructions[i];
    const bool called = plan.needed[body.first_result() + i] && is_function(op);
    if (called && vector_function(op, type) == nullptr) return false;
  }
  return true;
}

}  // namespace

SimdLevel widest_level() noexcept { return vectors_of(processor_simd_level()); }

std::shared_ptr<const Kernel> compile_for(SimdLevel level, const Body& body) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  constexpr std::size_t kMostBytes = 96 * 1024;
  constexpr int kMostFrameBytes = 32 * 1024;
  Plan plan = make_plan(body);
  if (!has_functions(level, body, plan)) return nullptr;
  Expanded expanded{body, {}};
  if (plan.calls && level == SimdLevel::kAvx512) {
    expanded = expand(body);
    plan = make_plan(expanded.body);
  }
  // Aligned as the code will be.
  const std::unique_ptr<Line[]> buffer(new Line[kMostBytes / sizeof(Line)]);
  try {
    const std::unique_ptr<VectorCode> code = level == SimdLevel::kAvx512
                                                 ? make_avx512(kMostBytes, buffer.get(), plan.wide)
                                                 : make_avx2(kMostBytes, buffer.get(), plan.wide);
    Program program(expanded.body, expanded.constants, plan, *code);
    program.emit();
    if (program.frame_bytes() > kMostFrameBytes) return nullptr;
    Code memory(std::span<const std::byte>(buffer[0].bytes, code->getSize()));
    if (memory.entry() == nullptr) return nullptr;
    std::size_t scratch = 0;
    for (const ValueId value : plan.stashed) scratch += size_of(plan.analysis.values[value].type);
    return std::make_shared<JitKernel>(std::move(memory), scratch, body.aligned);
  } catch (const Xbyak::Error&) {
    return nullptr;  // more code than there is room for
  }
}

}  // namespace jit

std::shared_ptr<const Kernel> compile(const Body& body) {
  if (!options().fusion_jit || simd_level() == SimdLevel::kScalar) return nullptr;
  return jit::compile_for(vectors_of(simd_level()), body);
}

}  // namespace loom::fusion
