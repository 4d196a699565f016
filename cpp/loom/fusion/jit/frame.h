// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where a kernel keeps what is not in registers: offsets from rsp, which is a multiple of 64.
// Thread: plain values.

#include "loom/fusion/body.h"

#include <cstddef>
#include <vector>

namespace loom::fusion::jit {

class Frame {
 public:
  /// `pointers` 8-byte places for addresses of rows, and one for each of `values`.
  /// `accumulators`: bytes for the accumulators of a loop.
  Frame(std::size_t pointers, std::size_t values, std::size_t accumulators)
      : homes_(kPointers + 8 * static_cast<int>(pointers)),
        accumulators_((homes_ + 8 * static_cast<int>(values) + 63) & -64),
        slots_(accumulators_ + static_cast<int>(accumulators)) {}

  [[nodiscard]] static int arguments() noexcept { return 0; }
  [[nodiscard]] static int rows_left() noexcept { return 8; }
  /// VectorCode::kWorkBytes.
  [[nodiscard]] static int work() noexcept { return 64; }
  [[nodiscard]] static int pointer(std::size_t i) noexcept {
    return kPointers + 8 * static_cast<int>(i);
  }
  /// Where a uniform value is as one number.
  [[nodiscard]] int home(ValueId value) const noexcept { return homes_ + 8 * value; }
  [[nodiscard]] int accumulators() const noexcept { return accumulators_; }

  /// 64 bytes for a vector that has no register for a while.
  int take_slot() {
    if (free_.empty()) return slots_ + 64 * slot_count_++;
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_slot(int slot) { free_.push_back(slot); }

  /// Of all that has been asked for until now.
  [[nodiscard]] int bytes() const noexcept { return slots_ + 64 * slot_count_; }

 private:
  static constexpr int kPointers = 192;
  int homes_, accumulators_, slots_;
  int slot_count_ = 0;
  std::vector<int> free_;
};

}  // namespace loom::fusion::jit
