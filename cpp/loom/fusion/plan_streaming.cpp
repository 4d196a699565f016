// SPDX-License-Identifier: BSD-3-Clause
// Which results of a plan are written past the caches.
#include "loom/fusion/fill_kernel.h"
#include "loom/fusion/plan.h"
#include "loom/fusion/vector_math.h"

#include <algorithm>

namespace loom::fusion {
namespace {

// Outputs of this many bytes and more leave the caches before anybody reads them.
constexpr std::uint64_t kStreamingBytes = std::uint64_t{16} << 20;
constexpr std::uintptr_t kVectorBytes = 64;
// Of shorter rows that begin anywhere, too much is neither whole lines nor streamed.
constexpr std::int64_t kLongRowBytes = 1024;
// A processor has few buffers that put stores to one line together. Intel's optimization manual
// allows for writing to four arrays at once; to twelve, Zen 4 takes five times as long as with
// stores through the caches.
constexpr int kCombinedOutputs = 4;

}  // namespace

bool Plan::aliases_input(const PlannedOperand& output) const noexcept {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const PlannedOperand& input) { return input.data == output.data; });
}

// Lines that were just read are in the caches already: there is nothing to save in writing past
// them.
void Plan::consider_streaming() {
  const bool whole_lines = vector_level() == SimdLevel::kAvx512;  // 16 elements of 4 bytes
  std::uint64_t written = 0;
  int combined = 0;
  bool aligned = true, alike = true;
  const PlannedOperand* first = nullptr;  // of those with elements
  for (const PlannedOperand& output : outputs_) {
    if (output.reach == Reach::kGathered) return;
    if (output.uniform) continue;
    combined += whole_lines && size_of(output.dtype) >= 4 ? 0 : 1;
    if (aliases_input(output)) return;
    aligned = aligned && begins_lines(output);
    alike = alike && begins_as(output, first == nullptr ? output : *first);
    if (first == nullptr) first = &output;
    written += static_cast<std::uint64_t>(rows_ * columns_) * size_of(output.dtype);
  }
  const bool combines = combined <= kCombinedOutputs;
  if (written < kStreamingBytes) return;
  if (aligned) {
    body_.streaming = combines || fills(body_);  // fills write whole lines
  } else {
    const auto bytes = columns_ * static_cast<std::int64_t>(size_of(first->dtype));
    body_.streaming = combines && alike && bytes >= kLongRowBytes && !fills(body_);
    body_.aligned = !body_.streaming;
  }
}

bool Plan::begins_lines(const PlannedOperand& output) const noexcept {
  bool lines = reinterpret_cast<std::uintptr_t>(output.data) % kVectorBytes == 0;
  for (int d = 0; d < column_dim_; ++d) {
    lines = lines && static_cast<std::uint64_t>(output.strides[d]) % kVectorBytes == 0;
  }
  return lines;
}

bool Plan::begins_as(const PlannedOperand& output, const PlannedOperand& other) const noexcept {
  bool alike = size_of(output.dtype) == size_of(other.dtype) &&
               (output.data - other.data) % static_cast<std::ptrdiff_t>(kVectorBytes) == 0;
  for (int d = 0; d < column_dim_; ++d) {
    alike = alike &&
            (output.strides[d] - other.strides[d]) % static_cast<std::ptrdiff_t>(kVectorBytes) == 0;
  }
  return alike;
}

}  // namespace loom::fusion
