// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/kernel_cache.h"

#include "loom/base/mutex.h"
#include "loom/fusion/fill_kernel.h"

#include <unordered_map>

namespace loom::fusion {
namespace {

// Machine code is made at the second run, or at once for this many elements: interpreting those
// costs about what making the code does.
constexpr std::int64_t kCompileAtOnce = 32768;

}  // namespace

struct KernelCache::State {
  Mutex mutex;
  std::unordered_multimap<std::size_t, std::shared_ptr<CachedKernel>> kernels
      LOOM_GUARDED_BY(mutex);
};

// Leaked: workers may run until the process ends.
KernelCache::State& KernelCache::state() {
  static auto* const instance = new State;
  return *instance;
}

KernelCache& KernelCache::instance() {
  static KernelCache cache;
  return cache;
}

std::shared_ptr<CachedKernel> KernelCache::find(const Body& body) {
  State& all = state();
  const std::size_t hash = hash_of(body);
  MutexLock lock(all.mutex);
  const auto [begin, end] = all.kernels.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second->body() == body) return it->second;
  }
  if (all.kernels.size() >= kMaxBodies) all.kernels.clear();
  return all.kernels.emplace(hash, std::make_shared<CachedKernel>(body))->second;
}

namespace {

// Guards what is not const in CachedKernels. Runs are counted in tens of microseconds.
Mutex& kernel_mutex() {
  static auto* const mutex = new Mutex;
  return *mutex;
}

}  // namespace

const Kernel& CachedKernel::choose(std::int64_t elements) {
  MutexLock lock(kernel_mutex());
  const bool worth_it = runs_ > 0 || elements >= kCompileAtOnce;
  if (compiled_ == nullptr && worth_it && !compile_failed_) {
    compiled_ = fills(body_) ? make_fill_kernel(body_) : compile(body_);
    compile_failed_ = compiled_ == nullptr;
  }
  if (compiled_ != nullptr) return *compiled_;
  if (interpreter_ == nullptr) interpreter_ = make_interpreter(body_);
  return *interpreter_;
}

void CachedKernel::note_run(const Program& program, std::uint64_t bytes, std::int64_t nanoseconds) {
  MutexLock lock(kernel_mutex());
  if (runs_++ == 0) operators_.assign(program.operators().begin(), program.operators().end());
  elements_ += static_cast<std::uint64_t>(program.space().numel);
  bytes_ += bytes;
  unfused_bytes_ += program.unfused_bytes();
  nanoseconds_ += nanoseconds;
}

std::vector<FusedProgram> KernelCache::report() {
  State& all = state();
  MutexLock lock(all.mutex);
  MutexLock kernels(kernel_mutex());
  std::vector<FusedProgram> programs;
  for (const auto& [hash, kernel] : all.kernels) {
    if (kernel->runs_ == 0) continue;
    FusedProgram program;
    program.operators.assign(kernel->operators_.begin(), kernel->operators_.end());
    program.instructions = to_string(kernel->body_);
    program.compiled = kernel->compiled_ != nullptr;
    program.runs = kernel->runs_;
    program.elements = kernel->elements_;
    program.bytes = kernel->bytes_;
    program.unfused_bytes = kernel->unfused_bytes_;
    program.nanoseconds = kernel->nanoseconds_;
    programs.push_back(std::move(program));
  }
  return programs;
}

void KernelCache::reset_report() {
  State& all = state();
  MutexLock lock(all.mutex);
  MutexLock kernels(kernel_mutex());
  for (const auto& [hash, kernel] : all.kernels) {
    kernel->runs_ = kernel->elements_ = kernel->bytes_ = kernel->unfused_bytes_ = 0;
    kernel->nanoseconds_ = 0;
  }
}

}  // namespace loom::fusion
