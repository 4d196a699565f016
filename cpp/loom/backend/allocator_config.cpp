// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator_config.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <unordered_set>

namespace loom {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

/// Rounds up to the next of `divisions` steps between two powers of two.
/// Requires: `divisions` is a power of two.
std::size_t round_to_division(std::size_t bytes, std::size_t divisions) {
  if (divisions <= 1 || bytes <= c10::CachingAllocator::kMinBlockSize * divisions) return bytes;
  const std::size_t step = std::bit_floor(bytes) / divisions;
  return (bytes + step - 1) & ~(step - 1);
}

}  // namespace

AllocatorConfig read_allocator_config() {
  AllocatorConfig config;
  // c10 accepts exactly the size of a large segment, too, which would make each of those oversize.
  config.max_split_size =
      std::max(AcceleratorAllocatorConfig::max_split_size(),
               2 * c10::CachingAllocator::kMinLargeAlloc + c10::CachingAllocator::kMinBlockSize);
  config.max_non_split_rounding = AcceleratorAllocatorConfig::max_non_split_rounding_size();
  config.garbage_collection_threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  const auto& divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  if (std::any_of(divisions.begin(), divisions.end(), [](std::size_t n) { return n > 1; })) {
    config.round_up = [](std::size_t bytes) {
      return round_to_division(bytes, AcceleratorAllocatorConfig::roundup_power2_divisions(bytes));
    };
  }
  return config;
}

void register_allocator_config() {
  // c10 keeps one hook; another accelerator may have set it.
  auto previous = AcceleratorAllocatorConfig::getConfigParserHook();
  AcceleratorAllocatorConfig::registerDeviceConfigParserHook(
      [previous](const std::string& settings) {
        if (previous) previous(settings);
        apply_allocator_config();
      },
      std::unordered_set<std::string>{});
}

}  // namespace loom
