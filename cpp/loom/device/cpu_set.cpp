// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cpu_set.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace loom {
namespace {

constexpr std::size_t kBits = 8 * sizeof(__cpu_mask);
// As many processors as a cpu_set_t has room for, and more than any system has.
constexpr std::size_t kFirstWords = CPU_SETSIZE / kBits,
                      kMostWords = (std::size_t{1} << 20) / kBits;

constexpr __cpu_mask bit_of(int cpu) noexcept {
  return __cpu_mask{1} << (static_cast<std::size_t>(cpu) % kBits);
}

constexpr std::size_t word_of(int cpu) noexcept { return static_cast<std::size_t>(cpu) / kBits; }

}  // namespace

CpuSet::CpuSet(const std::vector<int>& cpus) {
  for (const int cpu : cpus) insert(cpu);
}

std::optional<CpuSet> CpuSet::of_this_thread(GetAffinity get) { return of_thread(0, get); }

std::optional<CpuSet> CpuSet::of_main_thread() { return of_thread(getpid(), &sched_getaffinity); }

std::optional<CpuSet> CpuSet::of_thread(pid_t thread, GetAffinity get) {
  CpuSet set;
  // The system refuses a set that has not a bit for each processor that it could have.
  for (std::size_t words = kFirstWords; words <= kMostWords; words *= 2) {
    set.words_.assign(words, 0);
    auto* const system_set = reinterpret_cast<cpu_set_t*>(set.words_.data());
    if (get(thread, words * sizeof(__cpu_mask), system_set) == 0) return set;
    if (errno != EINVAL) break;
  }
  return std::nullopt;
}

bool CpuSet::apply_to_this_thread(SetAffinity set) const {
  const auto* const system_set = reinterpret_cast<const cpu_set_t*>(words_.data());
  return set(0, words_.size() * sizeof(__cpu_mask), system_set) == 0;
}

void CpuSet::insert(int cpu) {
  if (cpu < 0) return;
  if (word_of(cpu) >= words_.size()) words_.resize(word_of(cpu) + 1);
  words_[word_of(cpu)] |= bit_of(cpu);
}

void CpuSet::erase(int cpu) noexcept {
  if (contains(cpu)) words_[word_of(cpu)] &= ~bit_of(cpu);
}

bool CpuSet::contains(int cpu) const noexcept {
  return cpu >= 0 && word_of(cpu) < words_.size() && (words_[word_of(cpu)] & bit_of(cpu)) != 0;
}

bool CpuSet::empty() const noexcept {
  return std::all_of(words_.begin(), words_.end(), [](__cpu_mask word) { return word == 0; });
}

std::vector<int> CpuSet::cpus() const {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < static_cast<int>(words_.size() * kBits); ++cpu) {
    if (contains(cpu)) cpus.push_back(cpu);
  }
  return cpus;
}

bool operator==(const CpuSet& a, const CpuSet& b) {
  const CpuSet& longer = a.words_.size() < b.words_.size() ? b : a;
  const CpuSet& shorter = &longer == &a ? b : a;
  const auto rest = longer.words_.begin() + static_cast<std::ptrdiff_t>(shorter.words_.size());
  return std::equal(shorter.words_.begin(), shorter.words_.end(), longer.words_.begin()) &&
         std::all_of(rest, longer.words_.end(), [](__cpu_mask word) { return word == 0; });
}

}  // namespace loom
